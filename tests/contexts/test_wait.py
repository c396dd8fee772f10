"""Waiting for a group, and what it says of itself meanwhile."""

import asyncio
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from aioelastic import ContextStateError, DefaultLogsSpecs, ExitCause, GroupState, Std, SubprocessContext
from aioelastic._base.threads import in_thread
from tests.helpers.groups import WAITS_FOR, python_group, shell_group, spoken_pid, until_status, written
from tests.helpers.programs import DEAF, SLEEP, shells
from tests.helpers.waiting import is_alive, until, until_written

UNTIL_GO = WAITS_FOR.format(sign="go")


async def test_a_group_that_succeeds_gives_a_result_without_failures(tmp_path: Path) -> None:
    """The result comes when all ranks ended with 0."""
    async with shell_group(tmp_path, "exit 0", "exit 0", "exit 0") as context:
        result = await context.wait()

        assert result is not None
        assert not result.is_failed()
        assert result.failures == {}
        assert result.root_failure() is None
        assert sorted(result.exits) == [0, 1, 2]
        assert {each.exitcode for each in result.exits.values()} == {0}
        assert {each.cause for each in result.exits.values()} == {ExitCause.ENDED}
        result.raise_for_failures()


async def test_the_first_failure_stops_the_others(tmp_path: Path) -> None:
    """By the time of the result every other rank is gone, stopped by us and no failure."""
    async with shell_group(tmp_path, SLEEP, "exit 3", SLEEP) as context:
        result = await context.wait(timeout=30)

        assert result is not None
        assert list(result.failures) == [1]
        assert result.failures[1].exitcode == 3
        assert {rank: each.cause for rank, each in result.exits.items() if rank != 1} == {
            0: ExitCause.STOPPED,
            2: ExitCause.STOPPED,
        }
        assert not any(is_alive(pid) for pid in context.pids().values())


async def test_a_failure_gives_the_others_the_contexts_grace_and_no_more(tmp_path: Path) -> None:
    """A deaf rank is killed once ``shutdown_timeout`` after the failure."""
    async with shell_group(tmp_path, DEAF, f"{UNTIL_GO}; exit 3", shutdown_timeout=0.3) as context:
        began = time.monotonic()
        (tmp_path / "go").touch()
        result = await context.wait()

        assert result is not None
        assert 0.29 <= time.monotonic() - began < 5
        assert result.exits[0].signal == "SIGKILL"
        assert list(result.failures) == [1]


@pytest.mark.parametrize("timeout", [None, -1, -0.5, float("-inf"), float("inf")])
async def test_no_limit_waits_until_the_end(tmp_path: Path, timeout: float | None) -> None:
    """``None`` and negative numbers mean no limit."""
    async with shell_group(tmp_path, UNTIL_GO) as context:
        waiting = asyncio.create_task(context.wait(timeout))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        (tmp_path / "go").touch()
        assert await waiting is not None


async def test_zero_asks_without_waiting(tmp_path: Path) -> None:
    """It answers in the same turn of the loop, before the end with ``None`` and after it with the result."""
    async with shell_group(tmp_path, UNTIL_GO) as context:
        turned: list[int] = []
        asyncio.get_running_loop().call_soon(turned.append, 1)
        assert await context.wait(timeout=0) is None
        assert turned == []
        (tmp_path / "go").touch()
        result = await context.wait()
        assert await context.wait(timeout=0) is result is not None


async def test_a_timeout_gives_none_and_the_group_goes_on(tmp_path: Path) -> None:
    """Time that passes changes nothing for the ranks."""
    async with shell_group(tmp_path, UNTIL_GO) as context:
        began = time.monotonic()
        assert await context.wait(timeout=0.1) is None
        assert 0.09 <= time.monotonic() - began < 5
        assert is_alive(context.pids()[0])
        assert context.state is GroupState.RUNNING
        (tmp_path / "go").touch()
        assert await context.wait() is not None


async def test_times_are_monotonic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wall clock that jumps cuts no wait and prolongs no grace."""
    jumps = iter(range(0, 10**9, 86_400))
    async with shell_group(tmp_path, DEAF) as context:
        monkeypatch.setattr(time, "time", lambda: 2e9 + (-1) ** (day := next(jumps)) * day)
        began = time.monotonic()
        assert await context.wait(timeout=0.2) is None
        assert 0.19 <= time.monotonic() - began < 5
        await context.close(timeout=0.2)
        assert 0.39 <= time.monotonic() - began < 5


async def test_any_number_of_tasks_get_the_same_result(tmp_path: Path) -> None:
    """Waiters do not get into each other's way, whatever their limits."""
    async with shell_group(tmp_path, UNTIL_GO) as context:
        waiting = [asyncio.create_task(context.wait(timeout)) for timeout in (None, 60, -1)]
        assert await context.wait(timeout=0.01) is None
        (tmp_path / "go").touch()
        first, *others = await asyncio.gather(*waiting)

        assert first is not None
        assert all(each is first for each in others)


async def test_cancelling_a_waiter_cancels_only_the_waiter(tmp_path: Path) -> None:
    """The group and the other waiters go on."""
    async with shell_group(tmp_path, UNTIL_GO) as context:
        cancelled, other = (asyncio.create_task(context.wait()) for _ in range(2))
        await asyncio.sleep(0)
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(context.wait(), 0.01)

        assert context.state is GroupState.RUNNING
        (tmp_path / "go").touch()
        result = await other
        assert result is not None
        assert not result.is_failed()


async def test_a_rank_that_finishes_early_does_not_end_the_group(tmp_path: Path) -> None:
    """The others go on when one has ended with 0."""
    async with shell_group(tmp_path, "exit 0", f"{UNTIL_GO}; echo worked") as context:
        await until(lambda: "1 of 2 ranks running" in repr(context))
        assert await context.wait(timeout=0.05) is None
        (tmp_path / "go").touch()
        result = await context.wait()

        assert result is not None
        assert written(context, 1) == "worked\n"
        assert result.exits[1].cause is ExitCause.ENDED


@pytest.mark.parametrize("how", ["redirects", "tee"])
async def test_the_result_comes_when_every_stream_is_at_its_end(tmp_path: Path, how: str) -> None:
    """The files have every line when ``wait`` returns, the last one included."""
    script = "seq 1 50000; echo last; echo last >&2; exit 3"
    options = {"redirects": Std.NONE, how: Std.ALL, "local_ranks_filter": {1}}
    async with shell_group(tmp_path, script, "exit 0", **options) as context:
        result = await context.wait()

        assert result is not None
        assert Path(result.stdouts[0]).read_text().endswith("50000\nlast\n")
        assert Path(result.stderrs[0]).read_text() == "last\n"


async def test_a_pipe_held_for_ever_holds_back_the_result_no_longer_than_asked(tmp_path: Path) -> None:
    """A grandchild out of reach that keeps the teed stream costs ``drain_timeout``, and no line of the rank's."""
    script = "setsid sleep 60 & echo child $!; echo end; exit 0"
    async with shell_group(tmp_path, script, redirects=Std.NONE, tee=Std.OUT, drain_timeout=0.3) as context:
        result = await asyncio.wait_for(context.wait(), 5)

        assert result is not None
        assert written(context, 0).endswith("end\n")
        child = spoken_pid(context, 0)
        if is_alive(child):
            os.kill(child, signal.SIGKILL)


async def test_waiting_again_after_the_end_gives_the_same_result(tmp_path: Path) -> None:
    """The result stays, also when the context is closed."""
    async with shell_group(tmp_path, "exit 0") as context:
        result = await context.wait()
        assert await context.wait(timeout=5) is result
    assert await context.wait() is result is not None


async def test_a_closed_group_has_a_result_without_failures(tmp_path: Path) -> None:
    """Whoever waits learns of a close by somebody else: all ranks stopped, none failed."""
    async with shell_group(tmp_path, SLEEP, SLEEP) as context:
        waiting = asyncio.create_task(context.wait())
        await asyncio.sleep(0)
        await context.close()
        result = await waiting

        assert result is not None
        assert not result.is_failed()
        assert {each.cause for each in result.exits.values()} == {ExitCause.STOPPED}


def made(tmp_path: Path, *scripts: str, **options: Any) -> SubprocessContext:
    """Give a context that is not started."""
    specs = DefaultLogsSpecs(log_dir=tmp_path / "logs", redirects=Std.ALL)
    return SubprocessContext("test", "sh", shells(*scripts), None, specs, cwd=tmp_path, **options)


async def test_waiting_before_the_start_is_an_error(tmp_path: Path) -> None:
    """There is nothing to wait for, and it says what to do."""
    context = made(tmp_path, SLEEP)
    with pytest.raises(ContextStateError, match=r"start\(\)"):
        await context.wait()
    await context.close()
    with pytest.raises(ContextStateError, match="stopped"):
        await context.wait()


async def test_another_event_loop_is_an_error_and_no_endless_wait(tmp_path: Path) -> None:
    """A loop that does not supervise a running group can neither wait for it nor close it; once it has ended, both."""
    loop = asyncio.get_running_loop()

    async def elsewhere() -> None:
        assert await context.wait(0) is None
        with pytest.raises(ContextStateError, match="context 'test' lives in another event loop"):
            await context.wait()
        with pytest.raises(ContextStateError, match="lives in another event loop"):
            await context.close()
        asyncio.run_coroutine_threadsafe(context.close(), loop).result(20)
        assert (await context.wait()).exits[0].cause is ExitCause.STOPPED
        await context.close()

    async with shell_group(tmp_path, SLEEP) as context:
        with ThreadPoolExecutor(1) as thread:
            await loop.run_in_executor(thread, asyncio.run, elsewhere())


async def test_a_close_from_another_event_loop_takes_nothing_away() -> None:
    """It is refused before anything is removed: a rank that fails later finds the place of its error file."""
    async with SubprocessContext("test", "sh", shells(SLEEP), None, DefaultLogsSpecs()) as context:
        with pytest.raises(ContextStateError, match="lives in another event loop"):
            await in_thread(asyncio.run, context.close())

        assert Path(context.error_files[0]).parent.is_dir()


async def test_waiting_for_a_context_that_could_not_start_is_an_error(tmp_path: Path) -> None:
    """A start that failed leaves no result to wait for."""
    context = made(tmp_path / "missing", SLEEP)
    with pytest.raises(FileNotFoundError):
        await context.start()
    with pytest.raises(ContextStateError):
        await context.wait()
    await context.close()


async def test_starting_twice_is_an_error(tmp_path: Path) -> None:
    """A context runs one group, once, also after that has ended."""
    context = made(tmp_path, "exit 0")
    await context.start()
    with pytest.raises(ContextStateError, match="started before"):
        await context.start()
    await context.wait()
    with pytest.raises(ContextStateError, match="started before"):
        await context.start()
    await context.close()


async def test_the_state_says_where_a_group_stands(tmp_path: Path) -> None:
    """It goes from not started over starting and running to stopping and stopped."""
    context = made(tmp_path, DEAF)
    states = [context.state]
    starting = asyncio.create_task(context.start())
    await asyncio.sleep(0)
    states.append(context.state)
    await starting
    states.append(context.state)
    await until_written(context.stdouts[0], "ready")
    closing = asyncio.create_task(context.close(timeout=60))
    await asyncio.sleep(0)
    states.append(context.state)
    await context.close(timeout=0)
    await closing
    states.append(context.state)

    expected = ["not started", "starting", "running", "stopping", "stopped"]
    assert [state.value for state in states] == expected


@pytest.mark.parametrize(("script", "state"), [("exit 0", GroupState.SUCCEEDED), ("exit 1", GroupState.FAILED)])
async def test_the_last_state_says_how_it_ended(tmp_path: Path, script: str, state: GroupState) -> None:
    """A group that ended by itself has succeeded or failed, and closing it later does not change that."""
    async with shell_group(tmp_path, script, "exit 0") as context:
        await context.wait()
        assert context.state is state
    assert context.state is state


async def test_a_polite_group_that_was_closed_has_not_succeeded(tmp_path: Path) -> None:
    """Ranks that exit with 0 because they are told to leave have not done their work."""
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    async with shell_group(tmp_path, script) as context:
        await context.close()
        result = await context.wait()

        assert result is not None
        assert (result.exits[0].exitcode, result.exits[0].cause) == (0, ExitCause.STOPPED)
        assert context.state is GroupState.STOPPED


async def test_the_repr_says_what_is_going_on(tmp_path: Path) -> None:
    """It has the class, the name, the state in words, how many ranks run, and what is up with the others."""
    context = made(tmp_path, SLEEP, f"{UNTIL_GO}; exit 3")
    assert repr(context) == "<SubprocessContext 'test': not started>"
    await context.start()
    assert repr(context) == "<SubprocessContext 'test': running, 2 of 2 ranks running>"
    (tmp_path / "go").touch()
    await context.wait()
    assert repr(context) == (
        "<SubprocessContext 'test': failed, 0 of 2 ranks running, rank 1 exited with 3, rank 0 stopped by us>"
    )
    await context.close()


async def test_the_repr_tells_a_rank_that_was_killed(tmp_path: Path) -> None:
    """A death by somebody else's signal shows before the result is there."""
    async with shell_group(tmp_path, DEAF, SLEEP, shutdown_timeout=60) as context:
        os.kill(context.pids()[1], signal.SIGKILL)
        await until(lambda: "rank 1 killed by a signal from elsewhere" in repr(context))
        # The owner's next step: the exit is known one turn of the loop before the stop.
        await until(lambda: "stopping, 1 of 2 ranks running" in repr(context))
        await context.close(timeout=0)


async def test_pids_are_those_of_the_ranks(tmp_path: Path) -> None:
    """They are what the ranks themselves see, and stay known after the end."""
    async with shell_group(tmp_path, "echo child $$", "echo child $$") as context:
        pids = context.pids()
        await context.wait()
        assert pids == {rank: spoken_pid(context, rank) for rank in (0, 1)}
    assert context.pids() == pids


async def test_an_exit_has_all_that_is_known(tmp_path: Path) -> None:
    """Pid, code, signal, cause and times are there; memory and processor time are plausible where known."""
    before = time.time()
    async with python_group(tmp_path, "import sys; sys.exit(7)", "import time; time.sleep(60)") as context:
        result = await context.wait()
    after = time.time()

    assert result is not None
    failed, stopped = result.exits[0], result.exits[1]
    assert (failed.pid, failed.exitcode, failed.signal) == (context.pids()[0], 7, None)
    assert (stopped.pid, stopped.exitcode, stopped.signal) == (context.pids()[1], -signal.SIGTERM, "SIGTERM")
    for each in (failed, stopped):
        assert before <= each.start_time < each.end_time <= after
        assert not each.reaped_elsewhere
        assert each.peak_memory is None or 10**6 < each.peak_memory < 10**9
        assert each.cpu_time is None or 0 <= each.cpu_time < 60


async def test_an_exit_is_seen_when_it_happens(tmp_path: Path) -> None:
    """Nothing polls: the end time is that of the exit, within a moment."""
    async with shell_group(tmp_path, UNTIL_GO) as context:
        pid = context.pids()[0]
        (tmp_path / "go").touch()
        await until_status(pid, "zombie", "gone")
        now = time.time()
        result = await context.wait()
        assert result is not None
        assert abs(result.exits[0].end_time - now) < 0.5
