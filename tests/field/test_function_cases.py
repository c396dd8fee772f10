"""Cases from the field: functions that fail or end in a way that hung or misled others."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from aioelastic import ExitCause, ProcessFailure, Std, start_processes
from tests.helpers import function_endings, functions
from tests.helpers.function_groups import FORK_WARNING, METHODS, run_functions
from tests.helpers.waiting import is_alive

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.one_method, pytest.mark.half]

BOUND: Final = 10.0
"""Seconds for what takes one at most, on a busy machine."""


async def failure_of(folder: Path, method: str, function: Callable[..., Any], *args: Any) -> ProcessFailure:
    """Run one rank to its failure, which must come at once."""
    began = time.monotonic()
    result = await run_functions(method, function, args, log_dir=folder / "logs")
    assert time.monotonic() - began < BOUND
    return result.failures[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("culprit", [0, 2, 3])
async def test_ranks_that_the_launcher_stopped_are_no_causes(tmp_path: Path, method: str, culprit: int) -> None:
    """Of 4 ranks one raises: one failure, three exits stopped by us, one line for them in the report.

    https://github.com/pytorch/pytorch/issues/160908, https://github.com/pytorch/pytorch/issues/88251
    """
    go = tmp_path / "go"
    args = {rank: (go if rank == culprit else tmp_path / "never", "bad batch") for rank in range(4)}
    async with start_processes(
        "job", function_endings.raise_on, args, start_method=method, log_dir=tmp_path
    ) as context:
        go.touch()
        result = await context.wait(timeout=30)

    assert result is not None
    assert {rank: each.message for rank, each in result.failures.items()} == {culprit: "ValueError: bad batch"}
    others = {rank: each.cause for rank, each in result.exits.items() if rank != culprit}
    assert others == dict.fromkeys(set(range(4)) - {culprit}, ExitCause.STOPPED)


@pytest.mark.parametrize("method", METHODS)
async def test_ranks_that_fail_because_they_are_stopped_are_no_causes(tmp_path: Path, method: str) -> None:
    """A rank that turns SIGTERM into an exception of its own is not listed beside the cause.

    https://github.com/pytorch/pytorch/issues/160908
    """
    ready = [tmp_path / f"ready {rank}" for rank in range(2)]
    calls = {0: (ready[0], None), 1: (ready[1], ready[0])}
    async with start_processes(
        "job", function_endings.raise_on_sigterm, calls, start_method=method, log_dir=tmp_path
    ) as context:
        result = await context.wait(timeout=30)

    assert result is not None
    assert {rank: each.message for rank, each in result.failures.items()} == {1: "ValueError: the cause"}
    assert result.exits[0].cause is ExitCause.STOPPED


@pytest.mark.parametrize("method", METHODS)
async def test_an_exception_that_does_not_unpickle_hangs_nothing(tmp_path: Path, method: str) -> None:
    """Its rank fails at once, with type, text and traceback.

    https://github.com/python/cpython/issues/103061
    """
    failure = await failure_of(tmp_path, method, function_endings.fail_with, functions.NeedsTwo, "a", "b")

    assert failure.message == "NeedsTwo: a and b"
    assert "in fail_with\n" in failure.traceback
    assert failure.traceback.endswith("NeedsTwo: a and b\n")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", [function_endings.fail_from, function_endings.fail_in_coroutine])
async def test_such_an_exception_as_a_cause_hangs_nothing(
    tmp_path: Path, method: str, way: Callable[..., object]
) -> None:
    """As the cause of another, or raised in a coroutine's task, it is in the traceback.

    https://github.com/python/cpython/issues/103061
    """
    failure = await failure_of(tmp_path, method, way, functions.NeedsTwo, "a", "b")
    assert "NeedsTwo: a and b" in failure.traceback


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", ["sys.exit", "exit", "raise", "coroutine", "thread"])
async def test_a_function_that_exits_with_zero_has_succeeded(tmp_path: Path, method: str, way: str) -> None:
    """Nobody waits for its value: it is ``None``, at once, however the exit was asked for.

    https://github.com/pytorch/pytorch/issues/116224, https://github.com/pytorch/pytorch/issues/119697
    """
    began = time.monotonic()
    result = await run_functions(method, function_endings.leave_well, (way,), (way,))

    assert time.monotonic() - began < BOUND
    assert result.return_values == {0: None, 1: None}
    assert not result.is_failed()


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", ["_exit", "_exit in thread", "execv", "quick_exit"])
async def test_a_process_that_ends_well_without_a_value_has_failed(tmp_path: Path, method: str, way: str) -> None:
    """Nobody waits for its value: the failure says at once that there is none, however the process has ended.

    https://github.com/pytorch/pytorch/issues/116224, https://github.com/pytorch/pytorch/issues/119697
    """
    failure = await failure_of(tmp_path, method, function_endings.vanish, way)

    assert failure.exitcode == 0
    assert "ended with exit code 0 but returned no value" in failure.message


@pytest.mark.parametrize("method", METHODS)
async def test_a_value_is_not_waited_for_while_a_grandchild_lives(tmp_path: Path, method: str) -> None:
    """A rank that ends by ``os._exit(0)`` and leaves a child with its pipes has failed at once; the child is ended.

    https://github.com/pytorch/pytorch/issues/116224
    """
    child = tmp_path / "child"
    began = time.monotonic()
    result = await run_functions(
        method, function_endings.vanish_with_grandchild, (child,), log_dir=tmp_path / "logs", redirects=Std.ALL
    )

    assert time.monotonic() - began < BOUND
    assert "returned no value" in result.failures[0].message
    assert not is_alive(int(child.read_text()))
