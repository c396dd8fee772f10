"""Who failed first, who was stopped, and what is said when nobody can know."""

import json
import os
import signal
import time
from pathlib import Path

import pytest

from aioelastic import ExitCause, RunProcsResult
from tests.helpers.groups import WAITS_FOR, python_group, shell_group
from tests.helpers.programs import DEAF, SLEEP
from tests.helpers.waiting import is_alive

RECORDED = "import atexit, os, signal, sys, time\nfrom aioelastic import record\n"
"""The beginning of a program whose main function is decorated."""


def block_until_gone(pid: int) -> None:
    """Wait, with the event loop standing still, until a process has ended."""
    deadline = time.monotonic() + 20
    while is_alive(pid):
        assert time.monotonic() < deadline
        time.sleep(0.001)


def wait_code(script: str, sign: str) -> str:
    """Give a shell script that says it is ready, and does something once a file is there."""
    return f"echo ready; {WAITS_FOR.format(sign=sign)}; {script}"


@pytest.mark.parametrize("order", [(2, 0, 1), (1, 2, 0), (0, 1, 2)])
async def test_the_root_cause_is_the_first_in_true_order(tmp_path: Path, order: tuple[int, ...]) -> None:
    """Three ranks that fail one after the other while the loop is blocked are told apart nevertheless."""
    scripts = [wait_code("exit 3", "0"), wait_code("kill -KILL $$", "1"), wait_code("exit 5", "2")]
    async with shell_group(tmp_path, *scripts) as context:
        for rank in order:
            (tmp_path / str(rank)).touch()
            block_until_gone(context.pids()[rank])
        result = await context.wait()

        assert result is not None
        assert tuple(result.failures) == order
        assert tuple(result.exits) == order
        root = result.root_failure()
        assert root is not None
        assert root.local_rank == order[0]


async def result_after(folder: Path, *scripts: str) -> RunProcsResult:
    """Give the result of a group whose rank 0 fails with 3 once the others are ready."""
    async with shell_group(folder, wait_code("exit 3", "go"), *scripts) as context:
        (folder / "go").touch()
        result = await context.wait(timeout=30)
        assert result is not None
        return result


async def test_a_rank_that_ended_did_so_by_itself(tmp_path: Path) -> None:
    """An exit code without a signal of ours is the rank's own."""
    result = await result_after(tmp_path)
    assert (result.exits[0].cause, result.exits[0].exitcode) == (ExitCause.ENDED, 3)


@pytest.mark.parametrize("code", [0, 1, 143])
async def test_what_a_stopped_rank_exits_with_is_no_failure(tmp_path: Path, code: int) -> None:
    """A rank that leaves on our signal is stopped by us, whatever its code."""
    script = f"trap 'exit {code}' TERM; echo ready; while :; do sleep 0.05; done"
    result = await result_after(tmp_path, script, SLEEP)

    assert list(result.failures) == [0]
    assert (result.exits[1].cause, result.exits[1].exitcode) == (ExitCause.STOPPED, code)
    assert (result.exits[2].cause, result.exits[2].exitcode) == (ExitCause.STOPPED, -signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV])
async def test_a_signal_from_elsewhere_is_a_failure(tmp_path: Path, number: signal.Signals) -> None:
    """The out-of-memory killer, a person or a crash make a rank killed, SIGTERM from somebody else too."""
    async with shell_group(tmp_path, SLEEP, SLEEP) as context:
        os.kill(context.pids()[1], number)
        result = await context.wait(timeout=30)

        assert result is not None
        assert list(result.failures) == [1]
        assert result.failures[1].signal_name() == number.name
        assert (result.exits[1].cause, result.exits[1].signal) == (ExitCause.KILLED, number.name)
        assert result.exits[0].cause is ExitCause.STOPPED


async def test_a_stopped_rank_that_crashes_on_its_way_out_was_killed_but_did_not_fail(tmp_path: Path) -> None:
    """Its death is by no signal of ours, and it is a consequence all the same."""
    result = await result_after(tmp_path, "trap 'kill -SEGV $$' TERM; echo ready; while :; do sleep 0.05; done")

    assert list(result.failures) == [0]
    assert (result.exits[1].cause, result.exits[1].signal) == (ExitCause.KILLED, "SIGSEGV")


async def test_a_rank_killed_after_the_grace_is_stopped(tmp_path: Path) -> None:
    """SIGKILL of ours is ours, and no failure of the rank."""
    async with shell_group(tmp_path, DEAF, wait_code("exit 3", "go"), shutdown_timeout=0.2) as context:
        (tmp_path / "go").touch()
        result = await context.wait(timeout=30)

        assert result is not None
        assert list(result.failures) == [1]
        assert (result.exits[0].cause, result.exits[0].signal) == (ExitCause.STOPPED, "SIGKILL")


async def test_a_failure_recorded_before_the_stop_is_one_and_the_root_cause(tmp_path: Path) -> None:
    """A rank that raised and still hangs in its exit handlers when another one ends has failed, and first."""
    hangs = RECORDED + (
        "@record\ndef main():\n    raise ValueError('the cause')\n"
        "atexit.register(lambda: (open('raised', 'w').close(), time.sleep(60)))\nmain()"
    )
    follows = "import os, time\nwhile not os.path.exists('raised'): time.sleep(0.01)\nos._exit(9)"
    async with python_group(tmp_path, follows, hangs, "import time; time.sleep(60)") as context:
        result = await context.wait(timeout=30)

        assert result is not None
        assert list(result.failures) == [1, 0]
        assert result.failures[1].message == "ValueError: the cause"
        assert result.exits[1].cause is ExitCause.STOPPED
        with pytest.raises(Exception, match=r"Root cause: rank 1[\s\S]*Other failure: rank 0[\s\S]*1 rank \(2\)"):
            result.raise_for_failures()


async def test_a_failure_recorded_because_of_the_stop_is_none(tmp_path: Path) -> None:
    """A rank that turns our signal into an exception and records that was merely stopped."""
    raises = RECORDED + (
        "def stop(*_):\n    raise KeyError('stopped')\nsignal.signal(signal.SIGTERM, stop)\n"
        "@record\ndef main():\n    print('ready', flush=True)\n    time.sleep(60)\nmain()"
    )
    fails = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\nos._exit(9)"
    async with python_group(tmp_path, raises, fails) as context:
        (tmp_path / "go").touch()
        result = await context.wait(timeout=30)

        assert result is not None
        assert "KeyError" in Path(context.error_files[0]).read_text()
        assert list(result.failures) == [1]
        assert (result.exits[0].cause, result.exits[0].exitcode) == (ExitCause.STOPPED, 1)


async def test_an_error_file_older_than_the_rank_is_not_its_own(tmp_path: Path) -> None:
    """What an earlier run left in the place of the file does not make a stopped rank a failed one."""
    async with shell_group(tmp_path, SLEEP, wait_code("exit 3", "go")) as context:
        stale = {"message": {"message": "old", "extraInfo": {"timestamp": str(int(time.time()) - 3600)}}}
        Path(context.error_files[0]).write_text(json.dumps(stale))
        (tmp_path / "go").touch()
        result = await context.wait(timeout=30)

        assert result is not None
        assert list(result.failures) == [1]


@pytest.mark.parametrize("code", [0, 7, 255])
async def test_a_status_taken_by_another_part_of_the_program_is_never_invented(tmp_path: Path, code: int) -> None:
    """The exit says that it was taken; the code is the true one where the kernel kept it, else unknown."""
    async with shell_group(tmp_path, f"while ! [ -e go ]; do sleep 0.01; done; exit {code}") as context:
        (tmp_path / "go").touch()
        os.waitpid(context.pids()[0], 0)
        result = await context.wait(timeout=20)

    assert result is not None
    exited = result.exits[0]
    assert exited.reaped_elsewhere
    assert (exited.exitcode, exited.cause) in {(code, ExitCause.ENDED), (None, ExitCause.UNKNOWN)}
    assert list(result.failures) == ([] if exited.exitcode == 0 else [0])
