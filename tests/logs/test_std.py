"""Which streams something applies to: the mask, its text form and its expansion to ranks."""

import doctest
import pickle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelastic._errors.exceptions import RanksError, SpecificationError, SpecificationTypeError
from aioelastic._logs import std
from aioelastic._logs.std import Std, to_map

MASKS = st.sampled_from([Std.NONE, Std.OUT, Std.ERR, Std.ALL])


def test_values_are_those_of_torch() -> None:
    """The numbers are the ones that command lines and torch use."""
    assert [int(mask) for mask in (Std.NONE, Std.OUT, Std.ERR, Std.ALL)] == [0, 1, 2, 3]
    assert isinstance(Std.OUT, int)


def test_masks_combine() -> None:
    """A mask is combined, tested and inverted as an IntFlag is."""
    assert (Std.OUT | Std.ERR) is Std.ALL
    assert Std.ERR in Std.ALL
    assert Std.ERR not in Std.OUT
    assert ~Std.OUT is Std.ERR


@pytest.mark.parametrize("number", [4, 7, 8])
def test_unknown_bits_are_no_mask(number: int) -> None:
    """There is no mask with a bit that stands for no stream."""
    with pytest.raises(ValueError, match=str(number)):
        Std(number)


def test_a_mask_survives_pickling() -> None:
    """A mask comes back from a pickle as the same member."""
    assert pickle.loads(pickle.dumps(Std.ALL)) is Std.ALL


@settings(deadline=None)  # the machine may be busy
@given(mask=MASKS)
def test_one_digit_is_a_mask(mask: Std) -> None:
    """The text of a mask's number gives the mask."""
    assert Std.from_str(str(int(mask))) is mask


@settings(deadline=None)  # the machine may be busy
@given(masks=st.dictionaries(st.integers(0, 10**30), MASKS, min_size=1))
def test_pairs_are_a_map(masks: dict[int, Std]) -> None:
    """Pairs give the map they were written from, in its order, whatever the number of digits."""
    text = ",".join(f"{rank}:{int(mask)}" for rank, mask in masks.items())

    parsed = Std.from_str(text)

    assert isinstance(parsed, dict)
    assert list(parsed.items()) == list(masks.items())


def test_the_example_of_the_specification() -> None:
    """Ranks of two digits are read, which torch's parser cannot do."""
    assert Std.from_str("0:3,1:0,12:1") == {0: Std.ALL, 1: Std.NONE, 12: Std.OUT}


OTHER_TEXTS = [
    "4",
    "33",
    "-1",
    "0:4",
    "0:",
    ":3",
    "0:3,",
    ",0:3",
    "0:3,,1:1",
    "a:1",
    "0=3",
    "-1:3",
    "1.0:3",
    "0x1:3",
    "0;3",
    "0:3;1:1",
    "OUT",
]
ODD_TEXTS = ["", " ", "3\n", " 3", "0:3\n", "0:3, 1:1", "\N{ARABIC-INDIC DIGIT THREE}", "\N{FULLWIDTH DIGIT ONE}:1"]


@pytest.mark.parametrize("text", [*OTHER_TEXTS, *ODD_TEXTS, pytest.param("9" * 5000 + ":1", id="long")])
def test_anything_else_is_refused_and_shows_the_form(text: str) -> None:
    """Other text is a ValueError that says what to write instead, and is not megabytes long itself."""
    with pytest.raises(ValueError, match="0:3,1:0,12:1") as caught:
        Std.from_str(text)

    assert isinstance(caught.value, SpecificationError)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("text", ["1:3,1:3", "0:1,2:0,00:1"])
def test_a_repeated_rank_is_refused(text: str) -> None:
    """A rank named twice is a ValueError, also when it is spelled differently."""
    with pytest.raises(ValueError, match=r"names rank \d twice.*0:3,1:0,12:1"):
        Std.from_str(text)


@pytest.mark.parametrize("value", [3, None, b"3", Std.ALL])
def test_text_is_text(value: object) -> None:
    """What is no str is a TypeError and still a ValueError."""
    with pytest.raises(SpecificationTypeError, match="text"):
        Std.from_str(value)  # type: ignore[arg-type]


@settings(deadline=None)  # the machine may be busy
@given(mask=MASKS, nprocs=st.integers(0, 20))
def test_one_mask_goes_to_every_rank(mask: Std, nprocs: int) -> None:
    """A single mask is expanded to all ranks in order."""
    assert list(to_map(mask, nprocs).items()) == [(rank, mask) for rank in range(nprocs)]


@settings(deadline=None)  # the machine may be busy
@given(masks=st.dictionaries(st.integers(0, 9), MASKS))
def test_missing_ranks_get_no_stream(masks: dict[int, Std]) -> None:
    """Ranks that a map lacks get NONE, and the map itself is neither changed nor given back."""
    before = dict(masks)

    expanded = to_map(masks, 10)

    assert list(expanded.items()) == [(rank, before.get(rank, Std.NONE)) for rank in range(10)]
    assert masks == before
    assert expanded is not masks


def test_unknown_ranks_are_named() -> None:
    """Ranks that do not exist are an error that names them, keys that are no rank at all too."""
    with pytest.raises(RanksError) as caught:
        to_map({0: Std.OUT, 2: Std.OUT, -1: Std.OUT, "0": Std.OUT, True: Std.OUT}, 2, argument="tee")  # type: ignore[dict-item]

    assert caught.value.extra == (2, -1, "0", True)
    assert str(caught.value).startswith("tee does not fit the group: extra 2, -1, '0', True")


@pytest.mark.parametrize("number", [0, 1, 2, 3])
def test_plain_integers_are_masks(number: int) -> None:
    """An integer that is a mask's number is taken for it, alone and in a map."""
    assert to_map(number, 1) == {0: Std(number)}
    assert type(to_map({0: number}, 1)[0]) is Std


@pytest.mark.parametrize("number", [-1, 4, 255])
def test_other_integers_are_refused(number: int) -> None:
    """An integer that is no mask is refused; minus one is not taken for all bits."""
    with pytest.raises(SpecificationError, match=r"redirects\[0\] must be .*0\.\.3"):
        to_map({0: number}, 1, argument="redirects")


@pytest.mark.parametrize("value", [True, False, None, "3", 3.0, [Std.OUT], {0: True}, {0: None}, {0: "1"}])
def test_wrong_types_are_refused(value: object) -> None:
    """What is no mask is a TypeError; booleans, which Python counts as integers, are none."""
    with pytest.raises(SpecificationTypeError, match="must be Std"):
        to_map(value, 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(("nprocs", "error"), [(True, TypeError), (1.0, TypeError), (-1, ValueError)])
def test_the_number_of_ranks_is_checked(nprocs: int, error: type[Exception]) -> None:
    """A number of ranks that is none is refused."""
    with pytest.raises(error, match="nprocs"):
        to_map(Std.ALL, nprocs)


def test_examples_run() -> None:
    """The examples of the documentation do what they show."""
    assert doctest.testmod(std).failed == 0
