"""How functions fail, and what the result says of it, for all start methods."""

import json
import os
import re
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioelastic import (
    ChildFailedError,
    ExitCause,
    ProcessFailure,
    SpecificationError,
    SpecificationTypeError,
    Std,
    start_processes,
)
from tests.helpers import function_endings, functions
from tests.helpers.function_groups import FORK_WARNING, METHODS, run_functions
from tests.helpers.waiting import until

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.one_method, pytest.mark.half]

BOUND = 20.0
"""Seconds in which a failure must be there, on a busy machine too; nothing here waits for anything."""

NO_VALUE = "It ended with exit code 0 but returned no value: its process was ended by os._exit(0) or by C code"


async def failure_of(
    folder: Path, method: str, function: Callable[..., Any], *args: Any, **options: Any
) -> ProcessFailure:
    """Run one rank to its failure, with its stderr in a file."""
    began = time.monotonic()
    logs = {"log_dir": folder / "logs", "redirects": Std.ERR}
    result = await run_functions(method, function, args, **{**logs, **options})

    assert time.monotonic() - began < BOUND
    assert result.return_values == {}
    (failure,) = result.failures.values()
    assert (failure.pid, failure.exitcode) == (result.exits[0].pid, result.exits[0].exitcode)
    return failure


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("code", [0, None, False])
async def test_sys_exit_of_zero_is_a_success(tmp_path: Path, method: str, code: object) -> None:
    """``sys.exit`` with 0, or without a code, gives ``None`` as the value."""
    result = await run_functions(method, function_endings.leave, (sys.exit, code))

    assert result.return_values == {0: None}
    assert (result.failures, result.exits[0].exitcode) == ({}, 0)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("way", [sys.exit, os._exit])
async def test_an_exit_code_is_the_failure(tmp_path: Path, method: str, way: Callable[[int], None]) -> None:
    """``sys.exit(3)`` and ``os._exit(3)`` fail with 3, and leave no error file."""
    failure = await failure_of(tmp_path, method, function_endings.leave, way, 3)

    assert failure.exitcode == 3
    assert failure.message.startswith(f"PID {failure.pid} ended with exit code 3.")
    assert (failure.error_file, failure.error_file_data) == ("<N/A>", {"message": "<NONE>"})


@pytest.mark.parametrize("method", METHODS)
async def test_sys_exit_with_a_text_fails_with_one_and_shows_it(tmp_path: Path, method: str) -> None:
    """As in any Python program the text is on stderr and the code is 1; the end of stderr is in the message."""
    failure = await failure_of(tmp_path, method, function_endings.leave, sys.exit, "no such data set")

    assert failure.exitcode == 1
    assert failure.message.endswith("\nno such data set")


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("log_dir", ["logs", os.devnull])
async def test_an_end_without_a_value_is_a_failure(tmp_path: Path, method: str, log_dir: str) -> None:
    """``os._exit(0)`` in the function is no success: the failure has exit code 0 and says that no value came."""
    failure = await failure_of(tmp_path, method, function_endings.leave, os._exit, 0, log_dir=tmp_path / log_dir)

    assert (failure.exitcode, failure.signal_name()) == (0, "<N/A>")
    assert failure.message.startswith(NO_VALUE)


@pytest.mark.parametrize("method", METHODS)
async def test_last_words_on_stderr_are_shown(tmp_path: Path, method: str) -> None:
    """Without a record the end of the rank's stderr tells why, as it does for commands."""
    failure = await failure_of(tmp_path, method, function_endings.leave_with_text_on_stderr, 5)

    assert failure.exitcode == 5
    assert failure.message.endswith("\ndevice lost")
    assert failure.stderr_file


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1])
async def test_a_death_by_signal_is_named(tmp_path: Path, method: str, number: signal.Signals) -> None:
    """A rank that dies of a signal from elsewhere fails with that signal."""
    failure = await failure_of(tmp_path, method, function_endings.kill_self, number)

    assert (failure.exitcode, failure.signal_name()) == (-number, number.name)
    assert failure.message == f"Signal {number} ({number.name}) received by PID {failure.pid}"


@pytest.mark.parametrize("method", METHODS)
async def test_an_exception_is_the_failure(tmp_path: Path, method: str) -> None:
    """Type, text, traceback and time are there as if decorated with ``record``, in the error file too."""
    before = time.time()
    failure = await failure_of(tmp_path, method, function_endings.fail, "ValueError", "bad batch")

    assert (failure.message, failure.exitcode) == ("ValueError: bad batch", 1)
    assert "in fail\n" in failure.traceback
    assert failure.traceback.endswith("\nValueError: bad batch\n")
    assert before < failure.timestamp < time.time()
    written = json.loads(Path(failure.error_file).read_text())
    assert written == failure.error_file_data
    assert written["message"]["message"] == "ValueError: bad batch"
    assert "ValueError: bad batch" in written["message"]["extraInfo"]["py_callstack"]


@pytest.mark.parametrize("method", METHODS)
async def test_the_traceback_is_on_stderr_as_well(tmp_path: Path, method: str) -> None:
    """Whoever reads the rank's log sees what a Python program shows."""
    failure = await failure_of(tmp_path, method, function_endings.fail, "ValueError", "bad batch")

    log = Path(failure.stderr_file).read_text()
    assert "Traceback (most recent call last):" in log
    assert log.endswith("ValueError: bad batch\n")


@pytest.mark.parametrize("method", METHODS)
async def test_without_a_log_directory_the_exception_comes_by_the_pipe(tmp_path: Path, method: str) -> None:
    """With ``log_dir=os.devnull`` there is no error file, and the failure has type, text and traceback all the same."""
    failure = await failure_of(tmp_path, method, function_endings.fail, "ValueError", "bad batch", log_dir=os.devnull)

    assert failure.message == "ValueError: bad batch"
    assert "in fail\n" in failure.traceback
    assert failure.error_file == "<N/A>"
    assert failure.error_file_data["message"]["message"] == "ValueError: bad batch"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("log_dir", ["logs", os.devnull])
async def test_exception_groups_and_causes_are_recorded(tmp_path: Path, method: str, log_dir: str) -> None:
    """The traceback has every member of a group, or the cause and the notes."""
    grouped = await failure_of(tmp_path, method, function_endings.fail_in_group, log_dir=tmp_path / log_dir)
    caused = await failure_of(tmp_path, method, function_endings.fail_because, log_dir=tmp_path / log_dir)

    assert grouped.message.startswith("ExceptionGroup: both (2 sub-exceptions)")
    assert {"ValueError: one", "KeyError: 'two'"} <= {line.strip(" |") for line in grouped.traceback.splitlines()}
    assert caused.message.startswith("RuntimeError: the consequence")
    assert "KeyError: 'the cause'" in caused.traceback
    assert "a note" in caused.traceback


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["KeyboardInterrupt", "GeneratorExit", "BaseException"])
async def test_exceptions_that_are_no_errors_fail_too(tmp_path: Path, method: str, kind: str) -> None:
    """Whatever leaves the function makes its rank fail with 1, and its type and text are in the message."""
    failure = await failure_of(tmp_path, method, function_endings.fail, kind, "asked for")

    assert failure.exitcode == 1
    assert f"{kind}: asked for" in failure.message


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("log_dir", ["logs", os.devnull])
async def test_a_huge_text_is_cut(tmp_path: Path, method: str, log_dir: str) -> None:
    """Of 20 MB the failure has head and tail, by file and by pipe."""
    failure = await failure_of(
        tmp_path, method, function_endings.fail_at_length, 20_000_000, log_dir=tmp_path / log_dir
    )

    assert failure.message.startswith("ValueError: headxxx")
    assert failure.message.endswith("xxxtail")
    assert len(failure.message) < 10**6


@pytest.mark.parametrize("method", METHODS)
async def test_a_rank_that_closes_its_pipe_has_failed(tmp_path: Path, method: str) -> None:
    """A value that cannot be sent is no success, and the failure says why."""
    failure = await failure_of(tmp_path, method, function_endings.close_all)

    assert failure.exitcode == 1
    assert "has closed the descriptor by which its value is sent" in failure.message


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("log_dir", ["logs", os.devnull])
async def test_a_value_goes_into_no_file_of_the_functions(tmp_path: Path, method: str, log_dir: str) -> None:
    """A function that closes what it has not opened fails; what has taken the number of its pipe gets no byte."""
    path = tmp_path / "precious"
    function = function_endings.close_all_and_open
    failure = await failure_of(tmp_path, method, function, path, log_dir=tmp_path / log_dir)

    assert failure.exitcode == 1
    assert log_dir != "logs" or "has closed the descriptor by which its value is sent" in failure.message
    assert path.read_bytes() == b""


@pytest.mark.parametrize("method", METHODS)
async def test_an_exception_of_a_coroutine_is_the_failure(tmp_path: Path, method: str) -> None:
    """An ``async def`` fails as a plain function does."""
    failure = await failure_of(tmp_path, method, function_endings.fail_async, "bad batch")

    assert failure.message == "ValueError: bad batch"
    assert "in fail_async\n" in failure.traceback


@pytest.mark.parametrize("method", METHODS)
async def test_a_thread_that_fails_is_no_failure_of_its_rank(tmp_path: Path, method: str) -> None:
    """What the function returns counts."""
    result = await run_functions(method, function_endings.fail_in_thread, (3,))
    assert (result.return_values, result.failures) == ({0: 3}, {})


@pytest.mark.parametrize("method", METHODS)
async def test_the_first_failure_stops_the_others(tmp_path: Path, method: str) -> None:
    """The ranks that we stopped because of it are not failures, and have no values."""
    go = tmp_path / "go"
    args = {rank: (tmp_path / "never" if rank != 1 else go, 4) for rank in range(3)}
    async with start_processes("job", functions.fail_on, args, start_method=method, log_dir=tmp_path) as context:
        go.touch()
        result = await context.wait(timeout=30)

    assert result is not None
    assert {rank: each.exitcode for rank, each in result.failures.items()} == {1: 4}
    assert [result.exits[rank].cause for rank in (0, 2)] == [ExitCause.STOPPED] * 2


@pytest.mark.parametrize("method", METHODS)
async def test_the_exception_names_group_rank_and_cause(tmp_path: Path, method: str) -> None:
    """``raise_for_failures`` has the traceback of the function in its text."""
    result = await run_functions(
        method, function_endings.fail, ("ValueError", "bad batch"), log_dir=tmp_path, redirects=Std.ERR
    )

    with pytest.raises(ChildFailedError, match=r"(?s)job failed on .*Root cause: rank 0.*in fail\n.*bad batch"):
        result.raise_for_failures()


@pytest.mark.parametrize("method", METHODS)
async def test_an_end_by_os_exit_while_another_runs_stops_the_group(tmp_path: Path, method: str) -> None:
    """A failure with exit code 0 is a failure like any other: the ranks that wait for its partner are stopped."""
    go = tmp_path / "go"
    args = {0: (tmp_path / "never", 3, sys.exit), 1: (go, 0, os._exit)}
    async with start_processes(
        "job", function_endings.leave_on, args, start_method=method, log_dir=tmp_path
    ) as context:
        await until(lambda: "2 of 2 ranks running" in repr(context))
        go.touch()
        result = await context.wait(timeout=30)

    assert result is not None
    assert {rank: each.exitcode for rank, each in result.failures.items()} == {1: 0}
    assert result.exits[0].cause is ExitCause.STOPPED


@pytest.mark.parametrize("method", METHODS)
async def test_an_exit_code_after_the_return_counts(tmp_path: Path, method: str) -> None:
    """A rank whose finalizer leaves with 5 has failed with 5, although it had returned: its value is not given."""
    failure = await failure_of(tmp_path, method, function_endings.leave_at_exit, 5)
    assert failure.exitcode == 5


@pytest.mark.parametrize("method", METHODS)
async def test_an_end_by_zero_after_the_return_has_its_value(tmp_path: Path, method: str) -> None:
    """What was sent before ``os._exit(0)`` is the value."""
    result = await run_functions(method, function_endings.leave_at_exit, (0,))
    assert (result.return_values, result.failures) == ({0: "returned"}, {})


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("log_dir", ["logs", os.devnull])
async def test_an_exception_before_an_end_by_zero_is_the_cause(tmp_path: Path, method: str, log_dir: str) -> None:
    """A finalizer that ends the process with 0 does not hide what the function has raised."""
    failure = await failure_of(tmp_path, method, function_endings.fail_at_exit, log_dir=tmp_path / log_dir)

    assert failure.exitcode == 0
    assert failure.message == "ValueError: before the exit"


@pytest.mark.parametrize("start_method", ["thread", "", "SPAWN", None, 3])
def test_an_unknown_start_method_is_refused_at_once(start_method: Any) -> None:
    """The error comes from the call itself, and names what there is."""
    with pytest.raises(SpecificationError, match=f"{start_method!r}.*spawn, fork, forkserver"):
        start_processes("job", functions.give, {0: (1,)}, start_method=start_method)


@pytest.mark.parametrize("entrypoint", [None, 3, ["echo"], object(), b"echo"])
def test_what_is_neither_command_nor_function_is_refused_at_once(entrypoint: Any) -> None:
    """The error names the type and what would do."""
    with pytest.raises(SpecificationTypeError, match=f"{type(entrypoint).__name__}.*command.*function"):
        start_processes("job", entrypoint, {0: ()})


@pytest.mark.parametrize("args", [3, None, {"a": 1}, {1, 2}, iter(()), object()])
def test_args_that_are_no_row_are_refused_at_once(args: Any) -> None:
    """The error names the rank, the type and how a single argument is written."""
    kind = re.escape(type(args).__name__)
    with pytest.raises(SpecificationTypeError, match=rf"rank 1 must be a tuple .*not {kind}.*\(argument,\)"):
        start_processes("job", functions.give, {0: (1,), 1: args})


@pytest.mark.parametrize("method", METHODS)
async def test_wrong_arguments_are_the_ranks_failure(tmp_path: Path, method: str) -> None:
    """A call with too few arguments is the function's own ``TypeError``."""
    failure = await failure_of(tmp_path, method, functions.give)
    assert re.match(r"TypeError: give\(\) missing 1 required", failure.message)
