"""Lists of CPUs, in and out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._numa.cpu_lists import format_cpu_list, parse_cpu_list


@pytest.mark.parametrize(
    ("text", "numbers"),
    [
        ("", set()),
        ("\n", set()),
        ("0", {0}),
        ("0-3", {0, 1, 2, 3}),
        ("0-1,8,10-11\n", {0, 1, 8, 10, 11}),
        (" 3 , 1 ", {1, 3}),
        ("7-7", {7}),
        ("1,1-2", {1, 2}),
    ],
)
def test_what_the_kernel_prints_is_read(text: str, numbers: set[int]) -> None:
    """Numbers, ranges, and an empty line for none."""
    assert parse_cpu_list(text) == numbers


@pytest.mark.parametrize(
    "text", ["a", "-1", "1-", "3-1", "0-3:1/2", "1 2", "0x3", "\u0663", "0-99999999999", "0-999999999", "1048576"]
)
def test_anything_else_is_refused(text: str) -> None:
    """No guessing, and no range that would fill the memory."""
    with pytest.raises(ValueError, match=r"no (list|range) of CPUs"):
        parse_cpu_list(text)


@given(st.sets(st.integers(0, 300)))
def test_what_is_written_is_read_back(numbers: set[int]) -> None:
    """Writing and reading are inverse, except that people read ``none``."""
    text = format_cpu_list(numbers)

    assert parse_cpu_list("" if text == "none" else text) == numbers


@given(st.sets(st.integers(0, 300), min_size=1))
def test_ranges_are_as_long_as_they_can_be(numbers: set[int]) -> None:
    """Each part begins where the number before it is missing."""
    starts = [int(part.split("-")[0]) for part in format_cpu_list(numbers).split(",")]

    assert starts == sorted(number for number in numbers if number - 1 not in numbers)
