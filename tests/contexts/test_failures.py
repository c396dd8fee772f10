"""What a result says of ranks that failed."""

import asyncio
import json
import pickle
import signal
import time
from pathlib import Path

import pytest

from aioelastic import ChildFailedError, ProcessFailure, RunProcsResult, Std
from tests.helpers.groups import FAILS_ON_GO, WAITS_FOR, python_group, shell_group
from tests.helpers.programs import SLEEP
from tests.helpers.waiting import until

TORCH_FORM = """if True:
    import json, os, time
    data = {"message": {"message": "RuntimeError: NCCL", "errorCode": 5, "extraInfo": {
        "py_callstack": "Traceback (most recent call last): torch", "timestamp": str(int(time.time()))}}}
    json.dump(data, open(os.environ["TORCHELASTIC_ERROR_FILE"], "w"))
    os._exit(1)
"""
"""Writes its error file as torch's ``record`` does."""


async def result_of_python(folder: Path, *programs: str) -> RunProcsResult:
    """Run a group of Python programs to its end."""
    async with python_group(folder, *programs) as context:
        result = await context.wait(timeout=30)
        assert result is not None
        return result


def one(result: RunProcsResult) -> ProcessFailure:
    """Give the only failure."""
    (failure,) = result.failures.values()
    return failure


async def test_failures_have_the_root_cause_first(tmp_path: Path) -> None:
    """They are in order of time, the mapping's first is ``root_failure()``, and keys are ranks."""
    first, second = (WAITS_FOR.format(sign=sign) for sign in ("go0", "go1"))
    stays = "trap '' TERM; " + second + "; exit 4"
    async with shell_group(tmp_path, stays, first + "; touch go1; exit 3") as context:
        (tmp_path / "go0").touch()
        result = await context.wait(timeout=30)

        assert result is not None
        assert result.is_failed()
        root = result.root_failure()
        assert root is not None
        assert root is result.failures[root.local_rank]
        assert next(iter(result.failures)) == root.local_rank
        assert [each.timestamp for each in result.failures.values()] == sorted(
            each.timestamp for each in result.failures.values()
        )


@pytest.mark.parametrize("how", ["redirects", "tee"])
async def test_without_an_error_file_the_end_of_stderr_says_why(tmp_path: Path, how: str) -> None:
    """The last lines of a redirected or teed stderr are in the message."""
    script = "seq 1 1000 >&2; echo 'fatal: no such device' >&2; exit 3"
    options = {"redirects": Std.NONE, how: Std.ERR, "local_ranks_filter": {1}}
    async with shell_group(tmp_path, script, SLEEP, **options) as context:
        result = await context.wait(timeout=30)

        assert result is not None
        failure = one(result)
        assert failure.message.startswith(f"PID {context.pids()[0]} ended with exit code 3.")
        assert failure.message.endswith("1000\nfatal: no such device")
        assert "\n900\n" not in failure.message
        assert failure.stderr_file == context.stderrs[0]
        assert (failure.error_file, failure.error_file_data) == ("<N/A>", {"message": "<NONE>"})


async def test_without_anything_it_says_how_to_get_a_traceback(tmp_path: Path) -> None:
    """A rank that wrote to the console only leaves a hint."""
    async with shell_group(tmp_path, "exit 3", redirects=Std.NONE) as context:
        result = await context.wait(timeout=30)
        assert result is not None
        assert "aioelastic.record" in one(result).message


async def test_a_death_by_signal_is_named(tmp_path: Path) -> None:
    """Signal, name and pid make the message."""
    async with shell_group(tmp_path, "kill -KILL $$", redirects=Std.NONE) as context:
        result = await context.wait(timeout=30)
        assert result is not None
        failure = one(result)
        assert failure.message == f"Signal 9 (SIGKILL) received by PID {context.pids()[0]}"
        assert (failure.exitcode, failure.signal_name()) == (-signal.SIGKILL, "SIGKILL")


@pytest.mark.parametrize(
    "main",
    [
        "@record\ndef main():\n    raise ValueError('x')\nmain()",
        "@record\nasync def main():\n    await asyncio.sleep(0)\n    raise ValueError('x')\nasyncio.run(main())",
    ],
    ids=["plain", "async"],
)
async def test_an_exception_of_a_recorded_function_is_the_failure(tmp_path: Path, main: str) -> None:
    """Type, text, traceback and exact time come from the error file that the rank found in its environment."""
    before = time.time()
    result = await result_of_python(tmp_path, f"import asyncio\nfrom aioelastic import record\n{main}")
    failure = one(result)

    assert failure.message == "ValueError: x"
    assert "in main" in failure.traceback
    assert "ValueError: x" in failure.traceback
    assert before < failure.timestamp < result.exits[0].end_time
    assert failure.exitcode == 1
    assert json.loads(Path(failure.error_file).read_text()) == failure.error_file_data


async def test_an_error_file_in_torchs_form_is_read(tmp_path: Path) -> None:
    """A script decorated with torch's own ``record`` reports to us."""
    failure = one(await result_of_python(tmp_path, TORCH_FORM))

    assert failure.message == "RuntimeError: NCCL"
    assert failure.traceback.endswith("torch")
    assert failure.error_file_data["message"]["errorCode"] == 5
    assert abs(failure.timestamp - time.time()) < 30


async def test_an_error_file_in_the_flat_form_is_read(tmp_path: Path) -> None:
    """The short form that torch reads too gives its text."""
    program = TORCH_FORM.replace('data = {"message": {', 'data = {"message": "lost", "timestamp": 10, "rest": {')
    failure = one(await result_of_python(tmp_path, program))

    assert failure.message == "lost"
    assert failure.timestamp > 10


@pytest.mark.parametrize("script", ["exit 0", SLEEP])
async def test_a_success_and_a_close_are_no_failures(tmp_path: Path, script: str) -> None:
    """``is_failed`` is false, nothing is raised, and there is no root failure."""
    async with shell_group(tmp_path, script) as context:
        if script == SLEEP:
            await context.close()
        result = await context.wait(timeout=30)

        assert result is not None
        assert not result.is_failed()
        assert result.root_failure() is None
        result.raise_for_failures()


async def test_an_error_file_of_a_rank_that_succeeded_is_no_failure(tmp_path: Path) -> None:
    """Exit code 0 is a success, whatever a helper process of the rank has recorded."""
    result = await result_of_python(tmp_path, TORCH_FORM.replace("os._exit(1)", "os._exit(0)"))
    assert not result.is_failed()


async def test_the_exception_is_a_report_for_a_person(tmp_path: Path) -> None:
    """It names the group, the root cause with code, file and traceback, and has one line for the stopped ranks."""
    raising = "from aioelastic import record\n@record\ndef main():\n    raise ValueError('bad batch')\nmain()"
    sleeping = "import time; time.sleep(60)"
    result = await result_of_python(tmp_path, sleeping, raising, sleeping)

    with pytest.raises(ChildFailedError) as caught:
        result.raise_for_failures()
    text = str(caught.value)
    assert text.startswith("test failed on ")
    assert f"Root cause: rank 1 (pid {result.exits[1].pid})" in text
    assert "exit code : 1" in text
    assert str(one(result).error_file) in text
    assert "ValueError: bad batch" in text
    assert text.endswith("Stopped because of that: 2 ranks (0, 2)")
    assert caught.value.name == "test"
    assert caught.value.get_first_failure() == (1, one(result))


async def test_the_exception_travels_by_pickle(tmp_path: Path) -> None:
    """Its text and failures are the same on the other side, although the files are gone by then."""
    result = await result_of_python(tmp_path, TORCH_FORM)
    with pytest.raises(ChildFailedError) as caught:
        result.raise_for_failures()
    pickled = pickle.dumps(caught.value)
    Path(one(result).error_file).unlink()

    copy = pickle.loads(pickled)
    assert type(copy) is ChildFailedError
    assert str(copy) == str(caught.value)
    assert copy.failures == caught.value.failures


async def test_a_failure_passes_through_a_supervisor_that_is_a_rank_itself(tmp_path: Path) -> None:
    """A recorded main that raises for its own ranks hands the root cause's file on to the outer group."""
    inner = "from aioelastic import record\n@record\ndef main():\n    raise ValueError('deep')\nmain()"
    outer = f"""if True:
        import asyncio, sys
        from aioelastic import record, start_processes
        @record
        async def main():
            async with start_processes("inner", sys.executable, {{0: ("-c", {inner!r})}}) as context:
                (await context.wait()).raise_for_failures()
        asyncio.run(main())
    """
    failure = one(await result_of_python(tmp_path, outer))

    assert failure.message == "ValueError: deep"
    assert failure.error_file_data["message"]["errorCode"] == 1


async def test_the_root_cause_is_known_while_the_others_still_stop(tmp_path: Path) -> None:
    """The repr names the failed rank before the result is there."""
    async with shell_group(tmp_path, SLEEP.replace("exec", "trap '' TERM; echo ready;"), FAILS_ON_GO) as context:
        (tmp_path / "go").touch()
        await until(lambda: "rank 1 exited with 3" in repr(context))
        await asyncio.gather(context.close(timeout=0), context.wait())
