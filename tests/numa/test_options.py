"""What may be asked for."""

import copy
import enum
import pickle
from types import SimpleNamespace

import pytest

from aioelastic._errors.exceptions import AioelasticError, SpecificationError, SpecificationTypeError
from aioelastic._numa.errors import NumaBindingError
from aioelastic._numa.options import AffinityMode, NumaOptions, check_numa_options


class TorchMode(str, enum.Enum):  # noqa: UP042 - torch's enum is built like this
    """What torch's modes are."""

    CORE_COMPLEX = "core-complex"


def test_the_modes_are_torchs() -> None:
    """Names and values are those of torch's enum, in its order."""
    assert [(mode.name, mode.value) for mode in AffinityMode] == [
        ("NODE", "node"),
        ("SOCKET", "socket"),
        ("EXCLUSIVE", "exclusive"),
        ("CORE_COMPLEX", "core-complex"),
    ]


def test_options_are_positional_frozen_and_picklable() -> None:
    """They are values: equal by content, hashable, and fit for a spawned rank."""
    options = NumaOptions(AffinityMode.NODE, True)

    assert options.should_fall_back_if_binding_fails
    assert not NumaOptions(AffinityMode.NODE).should_fall_back_if_binding_fails
    assert pickle.loads(pickle.dumps(options)) == options == copy.deepcopy(options)
    assert len({options, NumaOptions(AffinityMode.NODE, should_fall_back_if_binding_fails=True)}) == 1
    with pytest.raises(AttributeError):
        options.affinity_mode = AffinityMode.SOCKET  # type: ignore[misc]


@pytest.mark.parametrize("mode", ["core-complex", TorchMode.CORE_COMPLEX, AffinityMode.CORE_COMPLEX])
def test_a_mode_may_be_text_or_torchs(mode: AffinityMode) -> None:
    """The text of a mode is made our mode, and so is a member of torch's enum."""
    assert NumaOptions(mode).affinity_mode is AffinityMode.CORE_COMPLEX


def test_an_unknown_mode_is_refused_by_name() -> None:
    """The error shows the modes there are."""
    with pytest.raises(SpecificationError, match="'numa': give one of 'node', 'socket', 'exclusive', 'core-complex'"):
        NumaOptions("numa")  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", [None, 1, b"node", ["node"]])
def test_a_mode_of_another_type_is_refused(mode: AffinityMode) -> None:
    """Only text can be a mode."""
    with pytest.raises(SpecificationTypeError, match="affinity_mode must be an AffinityMode"):
        NumaOptions(mode)


def test_the_fall_back_is_yes_or_no() -> None:
    """A truthy text would hide a mistake."""
    with pytest.raises(SpecificationTypeError, match="must be a bool, not str"):
        NumaOptions(AffinityMode.NODE, "no")  # type: ignore[arg-type]


def test_what_is_passed_as_options_is_checked() -> None:
    """None, ours, and whatever has both attributes are taken; anything else is named by its type."""
    ours = NumaOptions(AffinityMode.CORE_COMPLEX)
    torchs = SimpleNamespace(affinity_mode=TorchMode.CORE_COMPLEX, should_fall_back_if_binding_fails=False)

    assert check_numa_options(None) is None
    assert check_numa_options(ours) is ours
    assert check_numa_options(torchs) == ours
    others: list[object] = ["node", AffinityMode.NODE, {}, 3]
    for other in others:
        with pytest.raises(SpecificationTypeError, match="numa_options must be a NumaOptions or None, not"):
            check_numa_options(other)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (NumaBindingError("no CPU"), "the ranks cannot be bound to CPUs: no CPU"),
        (
            NumaBindingError("no GPU", mode=AffinityMode.NODE, local_rank=3, remedy="buy one"),
            "rank 3 cannot be bound to CPUs (NUMA mode node): no GPU; buy one",
        ),
    ],
)
def test_an_error_says_who_what_and_what_helps(error: NumaBindingError, text: str) -> None:
    """The message has all of it, and survives pickling with its attributes; torch's RuntimeError catches it."""
    again = pickle.loads(pickle.dumps(error))

    assert str(error) == str(again) == text
    assert vars(again) == vars(error)
    assert isinstance(again, AioelasticError)
    assert isinstance(again, RuntimeError)
