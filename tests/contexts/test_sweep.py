"""What leaves a rank's session is ended with the rank all the same, unless it has opted out."""

import asyncio
import os
import signal
import subprocess
from pathlib import Path

import pytest

from aioelastic import ExitCause, Std, start_processes
from tests.helpers import function_worlds as worlds
from tests.helpers.groups import shell_group, spoken_pid, written
from tests.helpers.programs import PYTHON, SLEEP
from tests.helpers.waiting import is_alive, until

DAEMON = "setsid sh -c 'echo child $$; exec sleep 60' & "
"""Leaves the session, and says its pid."""

DEAF_DAEMON = "setsid sh -c 'trap \"\" TERM; echo child $$; while :; do sleep 60; done' & "
"""Does the same and ignores SIGTERM, with all its children."""

DOUBLE_FORK = f"""{PYTHON} -c '
import os, signal, sys, time
if os.fork(): sys.exit()
os.setsid()
if os.fork(): sys.exit()
for descriptor in range(3, 256):
    try: os.close(descriptor)
    except OSError: pass
os.chdir("/")
print("child", os.getpid(), flush=True)
time.sleep(60)
'; """
"""The daemon of the textbook, which keeps nothing but its memory."""


@pytest.mark.parametrize("daemon", [DAEMON, DEAF_DAEMON, DOUBLE_FORK], ids=["setsid", "deaf", "double fork"])
async def test_a_daemon_does_not_outlive_a_close(tmp_path: Path, daemon: str) -> None:
    """It gets the signal with its rank, and SIGKILL at the deadline if it ignores that."""
    async with shell_group(tmp_path, daemon + SLEEP, shutdown_timeout=0.3) as context:
        await until(lambda: "child" in written(context, 0))
        child = spoken_pid(context, 0)
        assert os.getsid(child) != context.pids()[0]
        assert is_alive(child)
        await context.close()
        assert not is_alive(child)


@pytest.mark.parametrize("code", [0, 3])
async def test_a_daemon_does_not_outlive_the_result(tmp_path: Path, code: int) -> None:
    """Whether the ranks succeed or fail: when `wait` returns it is gone."""
    async with shell_group(tmp_path, f"{DAEMON} while ! [ -e go ]; do sleep 0.01; done; exit {code}") as context:
        await until(lambda: "child" in written(context, 0))
        child = spoken_pid(context, 0)
        (tmp_path / "go").touch()
        result = await context.wait(timeout=20)
        assert not is_alive(child)
        assert result is not None
        assert (result.exits[0].exitcode, result.exits[0].cause) == (code, ExitCause.ENDED)


async def test_a_daemon_that_a_dying_rank_starts_is_found(tmp_path: Path) -> None:
    """A rank that daemonises something because it is asked to end gains nothing by it, not even time."""
    # Without the inner trap a child that is signalled before it executes has the shell's handler, and loses the signal.
    script = "trap 'trap - TERM; setsid sleep 60 & echo child $!; exit' TERM; echo ready; while :; do sleep 0.05; done"
    async with shell_group(tmp_path, script, shutdown_timeout=60) as context:
        await asyncio.wait_for(context.close(), 20)
        assert not is_alive(spoken_pid(context, 0))


@pytest.mark.one_method
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
async def test_a_forked_daemon_of_a_function_is_found(method: str, tmp_path: Path) -> None:
    """It has executed nothing, so the kernel shows no environment of its own for it; it bears the token anyway."""
    async with start_processes("job", worlds.leave_a_daemon, {0: (str(tmp_path),)}, start_method=method) as context:
        await until(lambda: list(tmp_path.iterdir()))
        child = int(next(tmp_path.iterdir()).name)
        assert os.getsid(child) not in {context.pids()[0], os.getsid(0)}
        await context.close(timeout=0.2)
        assert not is_alive(child)


async def test_a_daemon_may_opt_out(tmp_path: Path) -> None:
    """Without the variable it is left alone, and with ``sweep_descendants=False`` with it."""
    without = DAEMON.replace("setsid", "env -u AIOELASTIC_RANK_TOKEN setsid")
    children = []
    try:
        for script, sweeps in ((without, True), (DAEMON, False)):
            async with shell_group(
                tmp_path / str(sweeps), script + SLEEP, cwd=tmp_path, sweep_descendants=sweeps
            ) as context:
                await until(lambda: "child" in written(context, 0))
                children.append(spoken_pid(context, 0))
        assert all(map(is_alive, children))
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)


async def test_a_rank_may_opt_out_with_all_its_children(tmp_path: Path) -> None:
    """A rank whose own variables take the token away is reached by its session only."""
    envs = {0: {"AIOELASTIC_RANK_TOKEN": None}}
    async with shell_group(tmp_path, DAEMON + SLEEP, envs=envs) as context:
        await until(lambda: "child" in written(context, 0))
        child = spoken_pid(context, 0)
        await context.close()
    assert is_alive(child)
    os.kill(child, signal.SIGKILL)


async def test_other_groups_and_other_children_are_left_alone(tmp_path: Path) -> None:
    """The end of one group signals neither the next one's daemons nor a hundred other children of this program."""
    others = [subprocess.Popen(["sleep", "60"], start_new_session=number % 2 == 0) for number in range(100)]
    try:
        async with shell_group(tmp_path / "a", DAEMON + SLEEP, cwd=tmp_path) as context:
            await until(lambda: "child" in written(context, 0))
            async with shell_group(tmp_path / "b", DAEMON + SLEEP, cwd=tmp_path) as other:
                await until(lambda: "child" in written(other, 0))
                await other.close(timeout=0)
            assert is_alive(spoken_pid(context, 0))
            assert is_alive(context.pids()[0])
            assert [each.poll() for each in others] == [None] * 100
    finally:
        for each in others:
            each.kill()
            each.wait()


async def test_a_daemon_that_holds_the_pipe_holds_up_nothing(tmp_path: Path) -> None:
    """Its end is the end of the stream, and what it said is in the log."""
    async with shell_group(tmp_path, DAEMON + "sleep 0.2; exit 0", tee=Std.OUT, redirects=Std.NONE) as context:
        result = await context.wait(timeout=4)
    assert result is not None
    assert "child" in Path(result.stdouts[0]).read_text()
