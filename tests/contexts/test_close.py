"""Closing a group: who is signalled, when, and how long that may take."""

import asyncio
import os
import signal
import time
from collections.abc import Awaitable
from pathlib import Path

import psutil
import pytest

from aioelastic import ExitCause, GroupState, PContext, RunProcsResult
from tests.helpers.groups import FAILS_ON_GO, python_group, shell_group, spoken_pid, until_status, written
from tests.helpers.programs import DEAF, PYTHON, SLEEP
from tests.helpers.waiting import is_alive, until, until_written

SAYS_BYE = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
"""Leaves politely, with a word."""


async def within(seconds: float, action: Awaitable[object]) -> None:
    """Do something that has to be over in time."""
    began = time.monotonic()
    await action
    assert time.monotonic() - began < seconds


async def result_of(context: PContext) -> RunProcsResult:
    """Give the result of a group that has ended."""
    result = await context.wait(timeout=0)
    assert result is not None
    return result


async def test_the_whole_group_is_signalled_and_not_only_the_leader(tmp_path: Path) -> None:
    """A child gets the signal although its leader, deaf, does not pass it on."""
    script = "sh -c \"trap 'echo child heard; exit 0' TERM; echo child \\$\\$; while :; do sleep 0.05; done\" & "
    async with shell_group(tmp_path, script + DEAF) as context:
        await until(lambda: "child" in written(context, 0))
        closing = asyncio.create_task(context.close(timeout=60))
        await until_written(context.stdouts[0], "child heard")
        assert is_alive(context.pids()[0])
        await context.close(timeout=0)
        await closing


async def test_a_child_in_a_process_group_of_its_own_is_reached(tmp_path: Path) -> None:
    """Job control moves children out of the group; they are still in the session."""
    program = """if True:
        import subprocess, time
        child = subprocess.Popen(["sleep", "60"], process_group=0)
        print("child", child.pid, "ready", flush=True)
        time.sleep(60)
    """
    async with python_group(tmp_path, program) as context:
        child = spoken_pid(context, 0)
        assert os.getpgid(child) != context.pids()[0]
        await within(10, context.close(timeout=30))
        assert not is_alive(child)


async def test_stopped_ranks_hear_the_signal(tmp_path: Path) -> None:
    """SIGCONT follows the signal, so a rank stopped by ^Z or a debugger can leave politely."""
    async with shell_group(tmp_path, SAYS_BYE.replace("ready;", "ready; kill -STOP $$;")) as context:
        await until_status(context.pids()[0], psutil.STATUS_STOPPED)
        await within(10, context.close(timeout=60))
        assert written(context, 0).endswith("bye\n")


async def test_deaf_ranks_share_one_deadline(tmp_path: Path) -> None:
    """Eight ranks that ignore the signal are killed after one grace, not after eight."""
    async with shell_group(tmp_path, *[DEAF] * 8) as context:
        began = time.monotonic()
        await within(2.5, context.close(timeout=0.5))
        assert time.monotonic() - began > 0.49

        assert not any(is_alive(pid) for pid in context.pids().values())
        exits = (await result_of(context)).exits
        assert {each.signal for each in exits.values()} == {"SIGKILL"}
        assert {each.cause for each in exits.values()} == {ExitCause.STOPPED}


async def test_leftovers_of_a_rank_that_had_succeeded_get_the_same(tmp_path: Path) -> None:
    """What a finished rank left behind is signalled, not killed at once, and gone after the close."""
    left = "sh -c \"trap 'echo heard; exit 0' TERM; echo child \\$\\$; while :; do sleep 0.05; done\" & exit 0"
    async with shell_group(tmp_path, left, SLEEP) as context:
        await until(lambda: "child" in written(context, 0) and "1 of 2" in repr(context))
        child = spoken_pid(context, 0)
        assert is_alive(child)
        await within(10, context.close(timeout=60))

        assert not is_alive(child)
        assert "heard" in written(context, 0)
        assert (await result_of(context)).exits[0].cause is ExitCause.ENDED


async def test_leftovers_end_with_a_group_that_succeeds(tmp_path: Path) -> None:
    """Also without a close nothing of a group is alive when its result is there."""
    async with shell_group(tmp_path, "sleep 60 & echo child $!; exit 0") as context:
        result = await context.wait(timeout=20)
        assert result is not None
        assert not result.is_failed()
        assert not is_alive(spoken_pid(context, 0))


async def test_zombies_do_not_count(tmp_path: Path) -> None:
    """A dead member whose parent, out of reach, never reaps it holds up nothing."""
    program = """if True:
        import os, time
        keeper = os.fork()
        if keeper == 0:
            dead = os.fork()
            if dead == 0:
                time.sleep(0.1)
                os._exit(0)
            os.setsid()
            print("child", os.getpid(), dead, "ready", flush=True)
            time.sleep(60)
            os._exit(0)
        time.sleep(60)
    """
    async with python_group(tmp_path, program) as context:
        keeper, dead = map(int, written(context, 0).split()[1:3])
        await until_status(dead, psutil.STATUS_ZOMBIE)
        assert os.getsid(dead) == context.pids()[0]
        await within(10, context.close(timeout=60))
        if is_alive(keeper):
            os.kill(keeper, signal.SIGKILL)


async def test_closing_again_does_nothing(tmp_path: Path) -> None:
    """It may be called any number of times, with any arguments, also after the natural end."""
    async with shell_group(tmp_path, "exit 0") as context:
        result = await context.wait()
        for _ in range(2):
            await context.close()
            await context.close(signal.SIGINT, 0)
        assert await context.wait() is result
        assert context.state is GroupState.SUCCEEDED


async def test_concurrent_calls_join(tmp_path: Path) -> None:
    """All return when the group is gone, and the ranks hear the signal once."""
    script = "trap 'echo heard' TERM; echo ready; while :; do sleep 60 & wait $!; done"
    async with shell_group(tmp_path, script) as context:
        closing = [asyncio.create_task(context.close(timeout=0.5)) for _ in range(5)]
        await asyncio.wait(closing, return_when=asyncio.FIRST_COMPLETED)
        assert not is_alive(context.pids()[0])
        await asyncio.gather(*closing)
        assert written(context, 0).count("heard") == 1


async def test_a_shorter_timeout_hurries_a_close_under_way(tmp_path: Path) -> None:
    """A longer one changes nothing."""
    async with shell_group(tmp_path, DEAF) as context:
        closing = asyncio.create_task(context.close(timeout=60))
        await until(lambda: context.state is GroupState.STOPPING)
        longer = asyncio.create_task(context.close(timeout=90))
        began = time.monotonic()
        await within(5, context.close(timeout=0.3))
        assert time.monotonic() - began > 0.29
        await asyncio.gather(closing, longer)


async def test_a_close_hurries_a_group_that_ends_because_of_a_failure(tmp_path: Path) -> None:
    """The grace of the context is cut by the timeout of a close."""
    async with shell_group(tmp_path, DEAF, FAILS_ON_GO, shutdown_timeout=60) as context:
        (tmp_path / "go").touch()
        await until(lambda: context.state is GroupState.STOPPING)
        await within(5, context.close(timeout=0.1))
        assert list((await result_of(context)).failures) == [1]


async def test_a_different_second_signal_is_delivered(tmp_path: Path) -> None:
    """A group that does not leave for the first signal gets the second one while the grace goes on."""
    script = "trap 'echo first' TERM; trap 'echo second; exit 0' INT; echo ready; while :; do sleep 0.05; done"
    async with shell_group(tmp_path, script) as context:
        closing = asyncio.create_task(context.close(timeout=60))
        await until_written(context.stdouts[0], "first")
        await within(10, context.close(signal.SIGINT, timeout=60))
        await closing
        assert written(context, 0) == "ready\nfirst\nsecond\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP, signal.SIGUSR1, signal.SIGKILL])
async def test_a_close_sends_the_signal_asked_for(tmp_path: Path, number: signal.Signals) -> None:
    """``death_sig`` of the call goes first and alone."""
    async with shell_group(tmp_path, SLEEP) as context:
        await within(10, context.close(number, timeout=60))
        exited = (await result_of(context)).exits[0]
        assert (exited.exitcode, exited.signal, exited.cause) == (-number, number.name, ExitCause.STOPPED)


async def test_sigkill_comes_without_a_grace(tmp_path: Path) -> None:
    """Closing with SIGKILL ends deaf ranks at once, whatever the timeout."""
    async with shell_group(tmp_path, DEAF) as context:
        await within(5, context.close(signal.SIGKILL, timeout=60))


@pytest.mark.parametrize("number", [signal.SIGQUIT, signal.SIGRTMIN + 3])
async def test_the_contexts_signal_and_timeout_are_the_defaults(tmp_path: Path, number: int) -> None:
    """``death_sig`` and ``shutdown_timeout`` of the start hold for a plain close, real-time signals too."""
    scripts = (SLEEP, DEAF.replace("TERM", str(number)), "sleep 60 & echo child $!; exit 0")
    async with shell_group(tmp_path, *scripts, death_sig=number, shutdown_timeout=0.3) as context:
        await until(lambda: "child" in written(context, 2) and "2 of 3" in repr(context))
        await within(5, context.close())
        exits = (await result_of(context)).exits
        assert exits[0].exitcode == -number
        assert exits[1].signal == "SIGKILL"
        assert not is_alive(spoken_pid(context, 2))


async def test_a_close_may_come_from_another_task(tmp_path: Path) -> None:
    """No cancel scope ties a context to the task that started it."""
    manager = shell_group(tmp_path, SLEEP)
    context = await asyncio.create_task(manager.__aenter__())
    await asyncio.create_task(context.close())
    assert not is_alive(context.pids()[0])
    await manager.__aexit__(None, None, None)


async def test_a_group_is_closed_without_a_single_descriptor_left(tmp_path: Path) -> None:
    """When the program is out of descriptors the ranks are stopped, killed and reaped all the same."""
    import resource  # noqa: PLC0415 - not on every platform

    async with shell_group(tmp_path, DEAF, SLEEP, SAYS_BYE) as context:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        lowest = os.dup(0)
        os.close(lowest)
        resource.setrlimit(resource.RLIMIT_NOFILE, (lowest, limits[1]))
        try:
            await within(10, context.close(timeout=0.5))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        exits = (await result_of(context)).exits
        assert [exits[rank].exitcode for rank in (0, 1, 2)] == [-signal.SIGKILL, -signal.SIGTERM, 0]
        assert not any(is_alive(pid) for pid in context.pids().values())


async def test_closes_that_race_with_the_natural_end_lose_nothing(tmp_path: Path) -> None:
    """Whenever two closes meet ranks on their way out, all return and the group has one result."""
    for turns in range(12):
        async with shell_group(tmp_path / str(turns), "exit 0", "exit 0", cwd=tmp_path) as context:
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            closes = [context.close(), context.close(signal.SIGINT, 0)]
            result, *_ = await asyncio.wait_for(asyncio.gather(context.wait(), *closes), 10)
            assert result is not None
            assert sorted(result.exits) == [0, 1]
            assert not result.is_failed()


async def test_a_member_that_leaves_the_session_is_not_waited_for(tmp_path: Path) -> None:
    """A process that opens a session of its own after it was seen does not hold back the end until the deadline."""
    program = "import os, time\nwhile not os.path.exists('go'): time.sleep(0.01)\nos.setsid()\ntime.sleep(60)"
    script = f"trap '' TERM; {PYTHON} -c \"{program}\" & echo child $!; echo ready; exit 0"
    async with shell_group(tmp_path, script, SLEEP, shutdown_timeout=60, sweep_descendants=False) as context:
        leaver = spoken_pid(context, 0)
        closing = asyncio.create_task(context.close())
        await until(lambda: context.state is GroupState.STOPPING, "the close")
        (tmp_path / "go").touch()
        try:
            await asyncio.wait_for(closing, 30)
            assert is_alive(leaver)
        finally:
            os.kill(leaver, signal.SIGKILL)
