"""Which lines a filtered copy has."""

import re
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._logs.lines import FilterEntry, LineFilter, check_filters

lines = st.lists(
    st.sampled_from([b"\n", b"\n", b"ab", b"a", b"error", b"]:", b":", b"\xff", "é".encode(), b"\xe2", b"\x00"]),
    max_size=20,
).map(lambda parts: b"".join((*parts, b"\n")))
words = st.text(alphabet="aber:]é\n\udcff", max_size=4)
patterns = st.sampled_from(["^a", "b$", r"\Aa.*b\Z", ":e", r"é|\ufffd", "(?s)a.b", r"a\s", "(?<=:)a"]).map(re.compile)


def naive_select(entries: Sequence[FilterEntry], prefix: str, block: bytes) -> bytes:
    """Select line by line, as `LineFilter` is defined."""
    selected = b""
    for line in block.split(b"\n")[:-1]:
        raw = prefix.encode() + line
        text = raw.decode(errors="replace")
        if any(
            entry.encode(errors="surrogateescape") in raw if isinstance(entry, str) else entry.search(text)
            for entry in entries
        ):
            selected += raw + b"\n"
    return selected


class TestFilter:
    """`LineFilter`."""

    @given(
        entries=st.lists(words, max_size=3) | st.lists(words | patterns, max_size=3),
        prefix=st.text(alphabet="ab:]é", max_size=4),
        block=lines,
    )
    def test_is_what_the_naive_definition_says(self, entries: list[FilterEntry], prefix: str, block: bytes) -> None:
        """It selects what looking at each prefixed line selects."""
        assert LineFilter(entries, prefix.encode()).select(block) == naive_select(entries, prefix, block)

    @pytest.mark.parametrize(
        ("entries", "selected"),
        [
            ([], b""),
            (["nothing"], b""),
            (["two"], b"P0:two\n"),
            (["o"], b"P0:one\nP0:two\n"),
            (["three", "one"], b"P0:one\nP0:three\n"),
            ([""], b"P0:one\nP0:two\nP0:three\n"),
            (["0:"], b"P0:one\nP0:two\nP0:three\n"),
            (["0:t"], b"P0:two\nP0:three\n"),
            (["P0:o"], b"P0:one\n"),
            ([re.compile("^P0:t.*e$")], b"P0:three\n"),
            ([re.compile("tw"), "ee"], b"P0:two\nP0:three\n"),
            (["one\n"], b""),
            (["\ntwo"], b""),
            ([":one\ntwo"], b""),
        ],
    )
    def test_any_entry_will_do(self, entries: list[FilterEntry], selected: bytes) -> None:
        """Text is a substring, a pattern is searched for, both in the prefixed line without its end."""
        assert LineFilter(entries, b"P0:").select(b"one\ntwo\nthree\n") == selected

    @pytest.mark.parametrize("count", [1, 5, 1000])
    @pytest.mark.parametrize("words", [["hit"], [":hi", "other"], ["h", "i", "t"]])
    def test_few_and_many_hits(self, words: list[FilterEntry], count: int) -> None:
        """Whichever way is faster for the number of hits, the lines are the same."""
        block = b"miss\nhit 1\nxhit\n" * count

        assert LineFilter(words, b"P:").select(block) == naive_select(words, "P:", block)

    def test_text_of_raw_bytes_is_found(self) -> None:
        """Text from ``os.fsdecode`` finds the bytes that it stands for; patterns see a replacement."""
        block = b"a\xff\nb\n"

        assert LineFilter(["\udcff"], b"").select(block) == b"a\xff\n"
        assert LineFilter([re.compile("\ufffd")], b"").select(block) == b"a\xff\n"

    def test_an_empty_block_has_no_lines(self) -> None:
        """Nothing is selected from nothing, not even by what selects everything."""
        for entries in ([""], ["x"], [re.compile("")]):
            assert LineFilter(entries, b"P:").select(b"") == b""


class TestCheckFilters:
    """`check_filters`."""

    def test_gives_a_tuple(self) -> None:
        """A list is taken as it is, and no list is an empty one."""
        pattern = re.compile("x")

        assert check_filters("f", ["a", pattern]) == ("a", pattern)
        assert check_filters("f", []) == check_filters("f", None) == ()

    @pytest.mark.parametrize("filters", ["ERROR", re.compile("ERROR"), b"ERROR", 3])
    def test_no_list(self, filters: object) -> None:
        """A bare entry is a mistake that the message mends."""
        with pytest.raises(SpecificationTypeError, match=r"^duplicate_stdout_filters is .*: pass a list .*\['?.*ERROR"):
            check_filters("duplicate_stdout_filters", filters)

    @pytest.mark.parametrize("entry", [b"x", re.compile(b"x"), None, 3])
    def test_an_entry_of_another_type(self, entry: object) -> None:
        """The message says which entry it is."""
        with pytest.raises(SpecificationTypeError, match=rf"^f\[1\] is {re.escape(repr(entry))}: an entry is"):
            check_filters("f", ["fine", entry])

    def test_text_that_no_output_can_have(self) -> None:
        """A lone surrogate that stands for no byte is refused."""
        with pytest.raises(SpecificationError, match=r"f\[0\] is .*no output has"):
            check_filters("f", ["\ud800"])
