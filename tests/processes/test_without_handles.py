"""Where processes cannot be held by handle (macOS, a strict sandbox), the same is done by number."""

import contextlib
import os
import signal
from pathlib import Path

import pytest

from aioelastic import ExitCause, Std, start_processes
from aioelastic._processes import exit_watch, process_handles
from tests.helpers import function_worlds as worlds
from tests.helpers.function_groups import FORK_WARNING, METHODS, function_group, ready
from tests.helpers.groups import shell_group, spoken_pid
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import is_alive, until


@pytest.fixture(autouse=True)
def without_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the handles away."""
    for module in (exit_watch, process_handles):
        monkeypatch.setattr(module, "has_handles", lambda: False)


async def test_a_failure_stops_the_others(tmp_path: Path) -> None:
    """Exits are seen, told apart and logged to the last line."""
    scripts = shells("echo last words; exit 3", SLEEP, "exit 0")
    async with start_processes("test", "sh", scripts, log_dir=tmp_path, tee={0: Std.OUT}) as context:
        result = await context.wait(timeout=30)

    assert result is not None
    assert list(result.failures) == [0]
    assert result.exits[0].exitcode == 3
    assert result.exits[1].cause is ExitCause.STOPPED
    assert Path(result.stdouts[0]).read_text() == "last words\n"


async def test_nothing_deaf_is_left_after_a_close(tmp_path: Path) -> None:
    """A child that ignores the signal is found and killed, after its leader as well."""
    deaf_child = "(trap '' TERM; echo child $(sh -c 'echo $PPID'); echo ready; while :; do sleep 60; done) & "
    async with shell_group(tmp_path, deaf_child + SLEEP) as context:
        left = spoken_pid(context, 0)
        await context.close(timeout=0.2)

        assert not is_alive(left)


@pytest.mark.filterwarnings(FORK_WARNING)
@pytest.mark.parametrize("method", METHODS)
async def test_functions_give_values_and_are_told_apart(method: str, tmp_path: Path) -> None:
    """Function ranks return, fail and are stopped as with handles."""
    args = {0: (worlds.double, 2), 1: (worlds.wait_and_exit, ready(tmp_path, 1), 3), 2: (worlds.pause,)}
    async with start_processes("test", worlds.call, args, start_method=method) as context:
        await until(lambda: "2 of 3" in repr(context), "the end of rank 0")
        Path(ready(tmp_path, 1)).touch()
        result = await context.wait(timeout=30)

    assert result is not None
    assert result.return_values == {0: 4}
    assert {rank: each.exitcode for rank, each in result.failures.items()} == {1: 3}
    assert result.exits[2].cause is ExitCause.STOPPED


@pytest.mark.filterwarnings(FORK_WARNING)
@pytest.mark.parametrize("method", METHODS)
async def test_a_deaf_function_is_killed(method: str, tmp_path: Path) -> None:
    """A function that ignores the signal, and what it left behind, is gone after the close."""
    async with function_group(method, tmp_path, worlds.be_deaf) as context:
        await context.close(timeout=0.2)

        assert not is_alive(context.pids()[0])
        result = await context.wait()

    assert result is not None
    assert (result.exits[0].signal, result.exits[0].cause) == ("SIGKILL", ExitCause.STOPPED)


@pytest.mark.filterwarnings(FORK_WARNING)
async def test_a_forked_function_that_somebody_else_reaps(tmp_path: Path) -> None:
    """A status that another part of the program takes is not invented, nor waited for."""
    async with function_group("fork", tmp_path, worlds.sleep_until_told) as context:
        pid = context.pids()[0]
        os.kill(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):  # the thread that waits for it may be faster
            os.waitpid(pid, 0)
        result = await context.wait(timeout=30)

    assert result is not None
    assert list(result.failures) == [0]
    assert not is_alive(pid)
