"""Descriptors that forked children of the supervisor close at once."""

import os
import subprocess
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress

import pytest

from aioelastic._base.private_descriptors import close_private, keep_private, share
from tests.helpers.programs import PYTHON


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """Open a pipe, and close what is left of it."""
    reading, writing = os.pipe()
    yield reading, writing
    for descriptor in (reading, writing):
        share(descriptor)
        with suppress(OSError):
            os.close(descriptor)


def _is_open(descriptor: int) -> bool:
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def in_fork(look: Callable[[], bool]) -> bool:
    """Ask a forked child of this program."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # a worker of pytest-xdist has a thread
        pid = os.fork()
    if pid == 0:
        code = 2
        try:
            code = 0 if look() else 1
        finally:
            os._exit(code)
    _, status = os.waitpid(pid, 0)
    code = os.waitstatus_to_exitcode(status)
    assert code in {0, 1}, "the look has failed"
    return code == 0


def test_a_private_descriptor_is_closed_in_a_fork_and_not_here(pipe: tuple[int, int]) -> None:
    """A forked child has no copy of it; here it stays open."""
    reading, writing = pipe

    assert keep_private(writing) == writing

    assert in_fork(lambda: not _is_open(writing) and _is_open(reading))
    assert _is_open(writing)


def test_a_shared_descriptor_is_kept(pipe: tuple[int, int]) -> None:
    """What was shared is open in children that are forked from then on."""
    _, writing = pipe
    keep_private(writing)

    share(writing)

    assert in_fork(lambda: _is_open(writing))


def test_a_closed_ones_number_is_anybodys(pipe: tuple[int, int]) -> None:
    """A descriptor that gets the number of a private one which was closed is not touched in a child."""
    reading, writing = pipe
    close_private(keep_private(writing))
    assert not _is_open(writing)

    os.dup2(reading, writing)

    assert in_fork(lambda: _is_open(writing))


def test_a_descriptor_closed_behind_its_back_does_no_harm(pipe: tuple[int, int]) -> None:
    """A private number that is not open any more does not keep a child from closing the others."""
    reading, writing = pipe
    keep_private(reading)
    keep_private(writing)
    os.close(reading)

    assert in_fork(lambda: not _is_open(writing))


def test_a_fork_of_a_fork_closes_nothing_of_its_own(pipe: tuple[int, int]) -> None:
    """The numbers are forgotten in the child: what it opens under one of them, its own children keep."""
    reading, writing = pipe
    keep_private(writing)

    def look() -> bool:
        os.dup2(reading, writing)
        return in_fork(lambda: _is_open(writing))

    assert in_fork(look)


def test_a_pipe_ends_with_its_owner_although_a_fork_lives(pipe: tuple[int, int]) -> None:
    """A reader sees the end as soon as the supervisor closes its end, whoever was forked meanwhile."""
    reading, writing = pipe
    keep_private(writing)
    go_reading, go_writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        os.close(go_writing)
        os.read(go_reading, 1)
        os._exit(0)

    close_private(writing)
    try:
        assert os.read(reading, 1) == b""
    finally:
        os.close(go_writing)
        os.close(go_reading)
        os.waitpid(pid, 0)


def test_a_command_has_none_either(pipe: tuple[int, int]) -> None:
    """A private descriptor is closed by exec, as any other."""
    _, writing = pipe
    keep_private(writing)

    listed = subprocess.run([PYTHON, "-c", f"import os; os.fstat({writing})"], capture_output=True, check=False)

    assert listed.returncode == 1
