"""What a round's caller does with one group, and what it sees."""

import asyncio
import os
import signal
import time
import traceback
from collections.abc import Coroutine
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import aioelastic
from aioelastic import ContextStateError, PContext, RunProcsResult, start_processes
from soaking import dice
from soaking.entries import journal_path, read_journal
from soaking.journal import start_time
from soaking.output import value_of
from soaking.plans import GroupPlan
from soaking.starts import start_arguments, unstarted

_FORWARDED: Final = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class PlannedError(Exception):
    """What a caller leaves ``async with`` by."""


class Caller:
    """Starts one group and does with it what the plan says.

    Attributes:
        seen: What is to be judged, as JSON takes it.
    """

    def __init__(self, plan: GroupPlan, directory: Path, mark: str, patience: float) -> None:
        self._plan = plan
        self._directory = directory
        self._mark = mark
        self._patience = patience
        self.seen: dict[str, Any] = {"name": plan.name, "stops": [], "kills": [], "errors": [], "cancelled": False}

    async def run(self) -> None:
        """Do it all; what is not as expected is an error in `seen`."""
        killing = asyncio.create_task(self._kill_ranks())
        try:
            context = await self._start()
            if context is not None:
                if self._plan.action.kind not in {dice.CLOSE_START, dice.TIMEOUT}:
                    await self._act(context)
                result = await context.wait(self._patience)
                self._note_result(context, result)
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            self.seen["errors"].append(traceback.format_exc())
        finally:
            killing.cancel()
            await asyncio.wait([killing])

    async def _start(self) -> PContext | None:
        """Give the running group, or ``None`` if it was not to come that far."""
        action = self._plan.action
        arguments = start_arguments(self._plan, self._directory, self._mark)
        if action.kind == dice.CLOSE_START:
            return await self._close_while_starting(unstarted(self._plan, arguments))
        if action.kind == dice.TIMEOUT:
            return await self._time_out(start_processes(**arguments))
        starting = asyncio.ensure_future(start_processes(**arguments))
        if action.kind == dice.CANCEL_START:
            await self._some_steps()
            self._note_stop("cancelled start", signal.SIGKILL, 0)
            starting.cancel()
            await asyncio.wait([starting])
            if starting.cancelled():
                self.seen["cancelled"] = True
                return None
        return await starting

    async def _some_steps(self) -> None:
        """Let the loop go on for as many steps as planned; many steps are milliseconds."""
        steps = self._plan.action.steps
        if steps > 30:
            await asyncio.sleep(steps / 1000)
            return
        for _ in range(steps):
            await asyncio.sleep(0)

    async def _close_while_starting(self, context: PContext) -> PContext | None:
        starting = asyncio.create_task(context.start())
        await self._some_steps()
        await self._close(context)
        await asyncio.wait([starting])
        if starting.exception() is None:
            return context
        self.seen["cancelled"] = True
        if not isinstance(starting.exception(), ContextStateError):
            await starting
        return None

    async def _time_out(self, group: AbstractAsyncContextManager[PContext]) -> PContext | None:
        """Have all of a group's life be cancelled after a while, by which it is closed, or that is hurried."""
        context: PContext | None = None
        delay = self._plan.action.delay
        self._note_stop("timeout", self._plan.death_signal, self._plan.shutdown_timeout, delay)
        self._note_stop("timeout of a close", signal.SIGKILL, 0, delay)
        try:
            async with asyncio.timeout(delay), group as context:
                await context.wait()
        except TimeoutError:
            self.seen["cancelled"] = context is None
        return context

    async def _act(self, context: PContext) -> None:
        action = self._plan.action
        if action.kind in {dice.WAIT, dice.TWO_WAITS}:
            await self._wait_to_the_end(context)
        elif action.kind == dice.WAIT_CLOSE:
            if await context.wait(action.delay) is None:
                await self._close(context)
        elif action.kind == dice.RAISE:
            await self._leave_by_exception(context)
        elif action.kind == dice.CANCEL_WAIT:
            waiting = asyncio.create_task(context.wait())
            await asyncio.sleep(action.delay)
            waiting.cancel()
            await asyncio.wait([waiting])
            await self._close(context)
        elif action.kind == dice.CANCEL_CLOSE:
            await self._cancel_close(context)
        elif action.kind == dice.FORWARD:
            await self._forward(context)
        else:
            await asyncio.sleep(0 if action.kind == dice.CANCEL_START else action.delay)
            closes = [self._close(context)]
            if action.kind == dice.TWO_CLOSES:
                closes.append(self._close_again(context))
            await asyncio.gather(*closes)

    async def _wait_to_the_end(self, context: PContext) -> None:
        waits: list[Coroutine[Any, Any, RunProcsResult | None]] = [context.wait()]
        if self._plan.action.kind == dice.TWO_WAITS:
            waits.append(context.wait(self._patience))
        results = await asyncio.gather(*waits)
        if any(each is not results[0] or each is None for each in results):
            self.seen["errors"].append(f"several waits gave {results}")
        if context.state.value not in {"succeeded", "failed", "stopped"}:
            self.seen["errors"].append(f"after its result the group's state is {context.state}")
        await context.close()

    async def _leave_by_exception(self, context: PContext) -> None:
        try:
            async with context:
                await asyncio.sleep(self._plan.action.delay)
                self._note_stop("exception", self._plan.death_signal, self._plan.shutdown_timeout)
                raise PlannedError  # noqa: TRY301 - it is what is tried here
        except PlannedError:
            return
        self.seen["errors"].append("the exception did not come out of async with")

    async def _cancel_close(self, context: PContext) -> None:
        await asyncio.sleep(self._plan.action.delay)
        closing = asyncio.create_task(self._close(context))
        await asyncio.sleep(self._plan.action.second_delay)
        self._note_stop("cancelled close", signal.SIGKILL, 0)
        closing.cancel()
        await asyncio.wait([closing])
        if not closing.cancelled():
            closing.result()

    async def _forward(self, context: PContext) -> None:
        """Be told to end as a program is; each group has a signal of its own."""
        number = _FORWARDED[int(self._plan.name[1])]
        async with aioelastic.forward_signals(context, number) as forwarded:
            await asyncio.sleep(self._plan.action.delay)
            self._note_stop("forwarded", number, self._plan.shutdown_timeout)
            os.kill(os.getpid(), number)
            await context.wait(self._patience)
        if forwarded.received != (number,):
            self.seen["errors"].append(f"the signals received are {forwarded!r}")

    async def _close(self, context: PContext) -> None:
        action, plan = self._plan.action, self._plan
        grace = plan.shutdown_timeout if action.grace < 0 else action.grace
        self._note_stop("close", action.signal or plan.death_signal, grace)
        first = signal.Signals(action.signal) if action.signal else None
        await context.close(first, None if action.grace < 0 else action.grace)

    async def _close_again(self, context: PContext) -> None:
        await asyncio.sleep(self._plan.action.second_delay)
        self._note_stop("second close", self._plan.death_signal, self._plan.action.second_grace)
        await context.close(timeout=self._plan.action.second_grace)

    def _note_stop(self, what: str, number: int, grace: float, delay: float = 0) -> None:
        self.seen["stops"].append({"what": what, "signal": int(number), "grace": grace, "time": time.time() + delay})

    async def _kill_ranks(self) -> None:
        begin = time.monotonic()
        kills = sorted((plan.kill_after, rank, plan.kill) for rank, plan in enumerate(self._plan.ranks) if plan.kill)
        for after, rank, number in kills:
            await asyncio.sleep(begin + after - time.monotonic())
            self._kill(rank, number)

    def _kill(self, rank: int, number: int) -> None:
        """Signal a rank, surely no stranger, if it runs."""
        entries = read_journal(journal_path(self._directory, self._plan.name, rank))
        if not entries.pid:
            return
        try:
            handle = os.pidfd_open(entries.pid)
        except ProcessLookupError:
            return
        try:
            if start_time(entries.pid) == entries.start:
                now = time.time()
                signal.pidfd_send_signal(handle, number)
                self.seen["kills"].append({"rank": rank, "signal": number, "time": now})
        except ProcessLookupError:
            return
        finally:
            os.close(handle)

    def _note_result(self, context: PContext, result: RunProcsResult | None) -> None:
        if result is None:
            self.seen["errors"].append(f"no result after a close: {context!r}")
            return
        self.seen["result"] = described(result, self._plan)
        self.seen["pids"] = context.pids()
        if not context.state.value.startswith(("succeeded", "failed", "stopped")):
            self.seen["errors"].append(f"after the close the group's state is {context.state}")
        try:
            repr(context)
        except ContextStateError:
            self.seen["errors"].append(traceback.format_exc())


def described(result: RunProcsResult, plan: GroupPlan) -> dict[str, Any]:
    """Give a result as JSON takes it."""
    values = {}
    for rank, value in result.return_values.items():
        expected = value_of(plan.ranks[rank].seed, plan.ranks[rank].number)
        values[rank] = "as expected" if value == expected else "None" if value is None else repr(value)[:200]
    return {
        "values": values,
        "exits": {
            rank: {
                "pid": each.pid,
                "code": each.exitcode,
                "signal": each.signal,
                "cause": each.cause.name,
                "start": each.start_time,
                "end": each.end_time,
                "reaped elsewhere": each.reaped_elsewhere,
            }
            for rank, each in result.exits.items()
        },
        "failures": {
            rank: {"code": each.exitcode, "pid": each.pid, "message": each.message, "file": each.error_file}
            for rank, each in result.failures.items()
        },
        "files": [result.stdouts, result.stderrs],
        "survivors": result.survivors,
    }
