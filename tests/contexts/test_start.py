"""Starting a context: every way in, and what each of them gives."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioelastic import (
    ContextStateError,
    DefaultLogsSpecs,
    ExitCause,
    GroupState,
    PContext,
    RankStartError,
    RunProcsResult,
    Std,
    SubprocessContext,
    start_processes,
)
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import is_alive, until_written


def _made(*scripts: str, **options: Any) -> SubprocessContext:
    return SubprocessContext("job", "sh", shells(*scripts), None, DefaultLogsSpecs(), **options)


class TestWaysIn:
    """Every way of getting at a running context."""

    async def test_await(self) -> None:
        """Awaiting gives a context whose ranks run."""
        context = await start_processes("job", "sh", shells(SLEEP, SLEEP))

        assert context.state is GroupState.RUNNING
        assert all(is_alive(pid) for pid in context.pids().values())
        assert list(context.pids()) == [0, 1]

        await context.close(signal.SIGKILL)

    async def test_async_with_closes(self) -> None:
        """Leaving the block ends the ranks, also by an exception, which goes on."""
        with pytest.raises(ZeroDivisionError):  # noqa: PT012 - the whole block is what is left
            async with start_processes("job", "sh", shells(SLEEP)) as context:
                pids = context.pids()
                raise ZeroDivisionError

        assert not is_alive(pids[0])
        assert context.state is GroupState.STOPPED

    async def test_async_with_on_a_running_context(self) -> None:
        """A context that was awaited can be put in ``async with`` to be closed."""
        context = await start_processes("job", "sh", shells(SLEEP))

        async with context as same:
            assert same is context

        assert not is_alive(context.pids()[0])

    async def test_create_task_and_wait_for(self) -> None:
        """What ``start_processes`` gives works in ``create_task``, ``wait_for``, ``gather`` and ``ensure_future``."""
        contexts: list[PContext] = [
            await asyncio.create_task(start_processes("job", "true", {0: ()})),
            await asyncio.wait_for(start_processes("job", "true", {0: ()}), 20),
            *await asyncio.gather(start_processes("job", "true", {0: ()}), start_processes("job", "true", {0: ()})),
            await asyncio.ensure_future(start_processes("job", "true", {0: ()})),
        ]

        results = [await context.wait() for context in contexts]
        for context in contexts:
            await context.close()

        assert [result.exits[0].exitcode for result in results] == [0] * 5

    async def test_context_made_first_and_started_later(self) -> None:
        """A context made with the seed's arguments starts with ``start`` and is new until then."""
        context = _made("exit 4")
        assert (context.state, context.pids()) == (GroupState.NEW, {})

        await context.start()
        result = await context.wait()
        await context.close()

        assert result is not None
        assert result.failures[0].exitcode == 4
        assert context.state is GroupState.FAILED

    async def test_async_with_starts_a_new_context(self) -> None:
        """Entering a context that was not started starts it."""
        async with _made("exit 0") as context:
            result = await context.wait()

        assert isinstance(result, RunProcsResult)
        assert context.state is GroupState.SUCCEEDED

    async def test_nothing_is_started_before_the_await(self, tmp_path: Path) -> None:
        """Calling ``start_processes`` makes no process and no file; given up unawaited it complains of nothing."""
        starting = start_processes("job", "touch", {0: ("made",)}, cwd=tmp_path, log_dir=tmp_path / "logs")

        starting.close()

        assert list(tmp_path.iterdir()) == []

    async def test_maps_changed_between_call_and_await(self, tmp_path: Path) -> None:
        """What counts is what the maps held at the call."""
        args, envs = {0: ("-c", "echo $WORD > made")}, {0: {"WORD": "then"}}
        starting = start_processes("job", "sh", args, envs, cwd=tmp_path)
        args.clear()
        envs[0]["WORD"] = "now"

        async with starting as context:
            await context.wait()

        assert (tmp_path / "made").read_text() == "then\n"


class TestTasks:
    """Contexts that pass from task to task."""

    @pytest.mark.parametrize("group_first", [False, True])
    async def test_made_in_one_task_waited_in_another_closed_in_a_third(
        self, tmp_path: Path, group_first: bool
    ) -> None:
        """Each step may be in a task of its own, task groups included, and the makers may be gone."""
        script = f"until [ -e {tmp_path}/go ]; do sleep 0.01; done"

        async def make() -> PContext:
            if not group_first:
                return await start_processes("job", "sh", shells(script, SLEEP))
            async with asyncio.TaskGroup() as group:
                made = group.create_task(start_processes("job", "sh", shells(script, SLEEP)))
            return made.result()

        context = await asyncio.create_task(make())
        waiting = asyncio.create_task(context.wait())
        (tmp_path / "go").touch()
        await asyncio.create_task(context.close(signal.SIGTERM, 10))
        result = await waiting

        assert result is not None
        assert result.exits[1].cause is ExitCause.STOPPED

    async def test_cancelling_the_task_that_started_leaves_the_group(self) -> None:
        """Once it is started, the end of the task that started it does not touch the group."""
        held: list[PContext] = []
        started = asyncio.Event()

        async def make() -> None:
            held.append(await start_processes("job", "sh", shells(SLEEP)))
            started.set()
            await asyncio.Event().wait()

        maker = asyncio.create_task(make())
        await started.wait()
        maker.cancel()
        await asyncio.wait([maker])

        assert await held[0].wait(0) is None
        assert is_alive(held[0].pids()[0])

        await held[0].close()

    async def test_several_groups_at_once(self, tmp_path: Path) -> None:
        """Groups started at the same time do not meet: each has its own ranks, logs and result."""

        async def one(number: int) -> tuple[int | None, str]:
            async with start_processes(
                "job", "sh", shells(f"echo {number}; exit {number}"), log_dir=tmp_path, redirects=Std.OUT
            ) as context:
                result = await context.wait()
                assert result is not None
                return result.exits[0].exitcode, Path(result.stdouts[0]).read_text()

        outcomes = await asyncio.gather(*map(one, range(1, 9)))

        assert outcomes == [(number, f"{number}\n") for number in range(1, 9)]


class TestZeroRanks:
    """A group without ranks."""

    @pytest.mark.parametrize("envs", [None, {}])
    async def test_it_succeeds_at_once(self, envs: dict[int, dict[str, str]] | None, tmp_path: Path) -> None:
        """It is a valid group: started, succeeded, with an empty result, and closed."""
        async with start_processes("job", "no-such-program", {}, envs, log_dir=tmp_path, tee=Std.ALL) as context:
            result = await context.wait()

        assert result is not None
        assert (result.exits, result.failures, result.stdouts, context.pids()) == ({}, {}, {}, {})
        assert context.state is GroupState.SUCCEEDED
        assert not result.is_failed()


class TestWrongOrder:
    """Calls at the wrong time."""

    async def test_starting_twice(self) -> None:
        """A second start is a ``ContextStateError`` and a ``RuntimeError``; the first group is not touched."""
        context = await start_processes("job", "sh", shells(SLEEP))

        with pytest.raises(ContextStateError, match="'job' was started before: make a new one") as caught:
            await context.start()

        assert isinstance(caught.value, RuntimeError)
        assert is_alive(context.pids()[0])

        await context.close()

    async def test_starting_while_it_starts(self) -> None:
        """Of two starts at the same time, one is refused."""
        context = _made("exit 0")

        outcomes = await asyncio.gather(context.start(), context.start(), return_exceptions=True)
        await context.close()

        assert outcomes[0] is None
        assert isinstance(outcomes[1], ContextStateError)

    async def test_entering_while_it_starts(self) -> None:
        """``async with`` waits for the start that another task is at, and says if that has failed."""
        context, hopeless = _made(SLEEP), SubprocessContext("job", "no-such-program", {0: ()}, None, DefaultLogsSpecs())
        starting, failing = (asyncio.create_task(each.start()) for each in (context, hopeless))
        await asyncio.sleep(0)

        async with context:
            assert starting.done()
            assert is_alive(context.pids()[0])
        with pytest.raises(ContextStateError, match="'job' did not start"):
            await hopeless.__aenter__()

        await starting
        with pytest.raises(RankStartError):
            await failing

    async def test_cancelled_as_it_is_entered(self) -> None:
        """A running context that is put in ``async with`` is closed, whenever its task is cancelled."""
        context, entered = await start_processes("job", "sh", shells(SLEEP)), asyncio.Event()

        async def use() -> None:
            entered.set()
            async with context:
                await asyncio.Event().wait()

        using = asyncio.create_task(use())
        await entered.wait()
        using.cancel()
        await asyncio.wait([using])

        assert using.cancelled()
        assert context.state is GroupState.STOPPED

    def test_after_the_event_loop(self) -> None:
        """What started, or could not, in a loop that has ended can be entered, or closed, in another one."""
        context, hopeless = (
            _made("exit 0"),
            SubprocessContext("job", "no-such-program", {0: ()}, None, DefaultLogsSpecs()),
        )

        async def enter() -> None:
            async with context:
                pass

        asyncio.run(context.start())
        with pytest.raises(RankStartError):
            asyncio.run(hopeless.start())

        asyncio.run(enter())
        asyncio.run(hopeless.close())

    async def test_starting_again_after_the_end(self) -> None:
        """A context whose group has ended is not started again."""
        async with _made("exit 0") as context:
            await context.wait()

            with pytest.raises(ContextStateError, match="was started before"):
                await context.start()

    async def test_starting_again_after_a_failed_start(self) -> None:
        """A context that could not start is not started again, and can be closed."""
        context = SubprocessContext("job", "no-such-program", {0: ()}, None, DefaultLogsSpecs())
        with pytest.raises(RankStartError):
            await context.start()

        with pytest.raises(ContextStateError, match="was started before"):
            await context.start()
        await context.close()

    @pytest.mark.parametrize("entering", [False, True])
    async def test_starting_after_close(self, entering: bool) -> None:
        """A closed context is not started, by ``start`` or ``async with``."""
        context = _made(SLEEP)
        await context.close()

        start: Callable[[], Any] = context.__aenter__ if entering else context.start
        with pytest.raises(ContextStateError, match="'job' was closed: make a new one"):
            await start()

        assert context.state is GroupState.STOPPED

    async def test_waiting_before_the_start(self) -> None:
        """Waiting for a context that was not started says to start it first."""
        with pytest.raises(ContextStateError, match=r"'job' is not started: call start\(\) before wait\(\)"):
            await _made(SLEEP).wait()

    async def test_closing_while_it_starts(self) -> None:
        """A close during the start ends what has come up; the start says that it was closed, or has just made it."""
        context = _made(SLEEP, SLEEP)
        starting = asyncio.create_task(context.start())
        await asyncio.sleep(0)

        await context.close(signal.SIGKILL)
        [outcome] = await asyncio.gather(starting, return_exceptions=True)

        assert outcome is None or isinstance(outcome, ContextStateError)
        assert not any(is_alive(pid) for pid in context.pids().values())

    async def test_use_after_close(self, tmp_path: Path) -> None:
        """After the close everything can still be asked: result, pids, paths and state; close is done again."""
        context = await start_processes("job", "sh", shells("echo here; exit 3"), log_dir=tmp_path, redirects=Std.OUT)
        await until_written(context.stdouts[0], "here")
        first = await context.wait()
        await context.close()
        await context.close()

        assert await context.wait() is first
        assert Path(context.stdouts[0]).read_text() == "here\n"
        assert list(context.pids()) == [0]
        assert repr(context) == "<SubprocessContext 'job': failed, 0 of 1 ranks running, rank 0 exited with 3>"
