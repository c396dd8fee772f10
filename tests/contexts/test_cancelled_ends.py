"""Waits and closes that are cancelled, wherever they stand: the group goes on with its holder, or nothing is left.

The reports behind it: https://github.com/python/cpython/issues/133536, https://github.com/python/cpython/issues/103847
and https://github.com/python/cpython/issues/125502.
"""

import asyncio
import logging
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final

import pytest
import uvloop

from aioelastic import (
    AffinityMode,
    ContextStateError,
    DefaultLogsSpecs,
    GroupState,
    MultiprocessContext,
    NumaOptions,
    PContext,
    Std,
    SubprocessContext,
)
from tests.helpers import function_worlds as worlds
from tests.helpers.function_groups import FORK_WARNING, METHODS
from tests.helpers.functions import HeldUp, give_held_up
from tests.helpers.programs import SLEEP, shells
from tests.helpers.sampling import sample
from tests.helpers.waiting import is_alive, until

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.one_method]

KINDS: Final = ("command", *METHODS)
"""What ranks are: commands, or functions by start method."""

STEPS: Final = {"command": 60, "fork": 30, "spawn": 12, "forkserver": 12}
"""Kind -> after how many steps of the loop something is cancelled, at most; slow starts are given fewer."""


def steps_of(kind: str) -> list[int]:
    """Give the numbers of steps after which something is cancelled: each of the first, then one in three or fewer."""
    return [*range(6), *sample(range(6, STEPS[kind], 3), 2)]


each_kind = pytest.mark.parametrize("kind", KINDS)


def make(kind: str, folder: Path, *, short: bool = False, tee: Std = Std.ALL) -> PContext:
    """Make a group of two ranks, which sleep or end at once; not started."""
    logs = DefaultLogsSpecs(folder, tee=tee, local_ranks_filter=())
    if kind == "command":
        return SubprocessContext("job", "sh", shells(*["exit 0" if short else SLEEP] * 2), None, logs)
    function = worlds.directory if short else worlds.pause
    return MultiprocessContext("job", function, dict.fromkeys(range(2), ()), None, kind, logs)


async def turns(number: int) -> None:
    """Let the loop go on for so many steps."""
    for _ in range(number):
        await asyncio.sleep(0)


async def cancelled_after(steps: int, waiting: Awaitable[Any]) -> bool:
    """Cancel something after so many steps; tell whether that came in time."""
    task = asyncio.ensure_future(waiting)
    await turns(steps)
    task.cancel()
    await asyncio.wait([task])
    return task.cancelled()


def assert_gone(context: PContext) -> None:
    """Fail if a rank is alive."""
    assert not [pid for pid in context.pids().values() if is_alive(pid)]


@each_kind
async def test_a_close_cancelled_after_k_steps(kind: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Once a close has begun, its cancellation leaves nothing; before, the group still runs and can be closed."""
    for steps in steps_of(kind):
        context = make(kind, tmp_path)
        await context.start()
        await cancelled_after(steps, context.close(timeout=60))
        if steps == 0:
            assert context.state is GroupState.RUNNING
        else:
            assert_gone(context)
            assert context.state is GroupState.STOPPED
        await context.close(signal.SIGKILL)
        assert_gone(context)
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


@each_kind
async def test_a_wait_cancelled_after_k_steps(kind: str, tmp_path: Path) -> None:
    """Its cancellation ends that wait alone: another one gets the result, whenever it comes to the group's end."""
    for steps in sample(range(0, 2 * STEPS[kind], 2), 2):
        context = make(kind, tmp_path, short=True)
        await context.start()
        other = asyncio.create_task(context.wait(timeout=60))
        await cancelled_after(steps, context.wait())
        result = await other

        assert result is not None
        assert not result.is_failed()
        assert await context.wait(timeout=0) is result
        await context.close()


@each_kind
async def test_a_start_cancelled_after_k_steps(kind: str, tmp_path: Path) -> None:
    """``start`` itself, cancelled, leaves nothing that runs, and a context that is closed and says so."""
    for steps in sample(range(2 * STEPS[kind]), 2):
        context = make(kind, tmp_path)
        if await cancelled_after(steps, context.start()) and steps:
            assert_gone(context)
            assert context.state is GroupState.STOPPED
            with pytest.raises(ContextStateError):
                await context.start()
        await context.close(signal.SIGKILL)
        assert_gone(context)


@each_kind
@pytest.mark.parametrize("cancelled", ["start", "close", "both"])
async def test_a_start_and_a_close_at_once(kind: str, tmp_path: Path, cancelled: str) -> None:
    """A close during a start, either or both of which are cancelled a few steps later, leaves nothing."""
    for steps in sample(range(0, STEPS[kind], 2), 2):
        context = make(kind, tmp_path)
        starting = asyncio.create_task(context.start())
        await turns(steps)
        closing = asyncio.create_task(context.close(timeout=60))
        await turns(steps % 5)
        if cancelled != "close":
            starting.cancel()
        if cancelled != "start":
            closing.cancel()
        await asyncio.wait([starting, closing], timeout=30)

        assert starting.done()
        assert closing.done()
        if not starting.cancelled():
            starting.exception()
        await asyncio.wait_for(context.close(signal.SIGKILL), 30)
        assert_gone(context)


@each_kind
async def test_the_task_that_started_is_cancelled_in_its_block(kind: str, tmp_path: Path) -> None:
    """``async with`` around a wait, cancelled after k steps and again during its close, leaves nothing."""
    contexts: list[PContext] = []

    async def work() -> None:
        contexts.append(make(kind, tmp_path))
        async with contexts[-1] as context:
            await context.wait()

    for steps in sample(range(0, 2 * STEPS[kind], 3), 2):
        task = asyncio.create_task(work())
        await turns(1 + steps)
        task.cancel()
        await turns(steps % 4)
        task.cancel()
        await asyncio.wait([task])

        assert task.cancelled()
        assert_gone(contexts[-1])


@each_kind
async def test_closes_and_waits_of_many_tasks_are_cancelled(kind: str, tmp_path: Path) -> None:
    """Of several closes and waits all but one of each are cancelled: those two return, with the group gone."""
    for steps in sample(range(0, STEPS[kind], 4), 2):
        context = make(kind, tmp_path)
        await context.start()
        closes = [asyncio.create_task(context.close(timeout=60)) for _ in range(3)]
        waits = [asyncio.create_task(context.wait()) for _ in range(3)]
        await turns(1 + steps)
        for task in closes[1:] + waits[1:]:
            task.cancel()
        await asyncio.wait_for(closes[0], 30)
        result = await asyncio.wait_for(waits[0], 30)
        await asyncio.wait([*closes, *waits])

        assert result is not None
        assert sorted(result.exits) == [0, 1]
        assert_gone(context)


@pytest.mark.parametrize("bound", [False, True])
async def test_a_start_by_the_exec_step_cancelled_after_k_steps(tmp_path: Path, bound: bool) -> None:
    """Ranks that get their signals, or their CPUs, from the exec step are gone as well, wherever it stands."""
    options = NumaOptions(AffinityMode.NODE, should_fall_back_if_binding_fails=True) if bound else None
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        for steps in sample(range(0, 200, 4), 2):
            logs = DefaultLogsSpecs(tmp_path, tee=Std.ALL, local_ranks_filter=())
            context = SubprocessContext("job", "sh", shells(SLEEP, SLEEP), None, logs, numa_options=options)
            await cancelled_after(steps, context.start())
            await context.close(signal.SIGKILL)
            assert_gone(context)
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_program_ends_while_a_value_is_unpickled(
    make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path
) -> None:
    """A main coroutine that ends while a thread unpickles a value leaves no guard, and no log open."""
    HeldUp.unpickling.clear()
    HeldUp.go.clear()

    async def main() -> None:
        logs = DefaultLogsSpecs(tmp_path, tee=Std.ALL)
        await MultiprocessContext("job", give_held_up, {0: ()}, None, "forkserver", logs).start()
        await until(HeldUp.unpickling.is_set, "the value")

    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(main())
    HeldUp.go.set()
