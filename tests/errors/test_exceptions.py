"""The exceptions keep their words when they travel."""

import errno
import os
import pickle
from typing import Any

import pytest

from aioelastic._errors.exceptions import DescriptorLimitError, RanksError, RankStartError

BUILT_IN: dict[int, type[OSError]] = {
    errno.ENOENT: FileNotFoundError,
    errno.EACCES: PermissionError,
    errno.EPERM: PermissionError,
    errno.ENOTDIR: NotADirectoryError,
    errno.EEXIST: FileExistsError,
    errno.EAGAIN: BlockingIOError,
    errno.E2BIG: OSError,
}


def start_error(number: int) -> RankStartError:
    """Give the error of a rank that could not start."""
    error = OSError(number, os.strerror(number), "prog")
    return RankStartError(3, ["prog", "x"], None, error)


@pytest.mark.parametrize(("number", "built_in"), BUILT_IN.items())
def test_a_start_error_is_the_built_in_of_its_errno(number: int, built_in: type[OSError]) -> None:
    """It is caught as subprocess's would be, and has its errno and text."""
    error = start_error(number)

    assert isinstance(error, built_in)
    assert (number, os.strerror(number), "prog") == (error.errno, error.strerror, error.filename)
    assert f"rank 3 could not start: [{errno.errorcode[number]} {number}] {os.strerror(number)}" in str(error)


def test_a_start_error_without_errno_keeps_its_text() -> None:
    """An `OSError` made of a text alone loses nothing."""
    assert "no tty" in str(RankStartError(0, ["prog"], None, OSError("no tty")))


@pytest.mark.parametrize(
    "error",
    [
        *map(start_error, BUILT_IN),
        RanksError("envs", missing=[1], extra=["2"], nprocs=2),
        DescriptorLimitError(10, 5, 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_exception_travels_by_pickle(error: Any) -> None:
    """Type, text and attributes arrive."""
    arrived = pickle.loads(pickle.dumps(error))

    assert type(error) is type(arrived)
    assert str(error) == str(arrived)
    assert vars(error) == vars(arrived)
