"""A group of ranks from its start to its result, in one task of its own.

The task that starts a group and those that wait for it or close it may come and go, each with its cancel scopes; what
must be entered and left in one task is entered and left in the owner's::

    start ranks, all or none
      └─▶ watch exits ──▶ all ended, one failed, or a stop was requested
            └─▶ ladder: signal, shared grace, SIGKILL
                  └─▶ drain the logs ──▶ publish the outcome
"""

import asyncio
import logging
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import Final, NamedTuple

import anyio

from aioelastic._base.defaults import REAP_TIMEOUT
from aioelastic._base.shielding import backend_loaded, settle
from aioelastic._base.signals import signal_name
from aioelastic._base.threads import in_thread
from aioelastic._guard.guard import GroupWatch
from aioelastic._logs.group_logs import GroupLogs, StreamName
from aioelastic._processes.rank_process import ProcessTable, RankProcess
from aioelastic._supervision.events import Event, EventHub, EventKind
from aioelastic._supervision.exits import Ending, ExitCause, is_failure, judge
from aioelastic._supervision.ladder import Ladder, StopOrder
from aioelastic._supervision.outcome import GroupOutcome, explain
from aioelastic._supervision.states import GroupState

logger = logging.getLogger("aioelastic")

_LONGEST_TURN: Final = 0.0005
"""Seconds of starts after which the loop gets its turn: hundreds in a row would take a large part of a second."""

RankStarter = Callable[[int, Mapping[StreamName, int | None], Callable[[], None]], Awaitable[RankProcess]]
"""Starts one rank with descriptors for its streams; the callback is called as soon as its exit is seen."""


class GroupPlan(NamedTuple):
    """What a group is to be, checked.

    Attributes:
        name: A word for people.
        nprocs: Number of ranks.
        death_signal: What a rank gets first when the group ends.
        shutdown_timeout: Seconds from there to SIGKILL.
        drain_timeout: Seconds from a rank's exit to the end of its logs.
        error_files: Rank -> path of its error file, or ``""``.
        stderr_files: Rank -> path of its stderr log, or ``""``.
        swept_groups: The group's token, if what leaves the ranks' sessions is to be ended with them; else nothing.
    """

    name: str
    nprocs: int
    death_signal: int
    shutdown_timeout: float
    drain_timeout: float
    error_files: Mapping[int, str]
    stderr_files: Mapping[int, str]
    swept_groups: Collection[str] = ()


class Group:
    """A group of ranks, owned by a task of its own.

    Args:
        plan: What the group is to be.
        logs: Its output, opened.
        start_rank: Starts one of its ranks.
        table: The system's processes.
        watch: What ends the group if this program cannot.
        events: Where to tell what happens.
    """

    def __init__(
        self,
        plan: GroupPlan,
        logs: GroupLogs,
        start_rank: RankStarter,
        table: ProcessTable,
        watch: GroupWatch,
        events: EventHub,
    ) -> None:
        loop = asyncio.get_running_loop()
        self.outcome: asyncio.Future[GroupOutcome] = loop.create_future()
        self.processes: dict[int, RankProcess] = {}
        self._plan = plan
        self._logs = logs
        self._start_rank = start_rank
        self._table = table
        self._watch = watch
        self._events = events
        self._loop = loop
        self._started: asyncio.Future[None] = loop.create_future()
        self._stop: StopOrder | None = None
        self._patience: asyncio.Timeout | None = None
        self._news = asyncio.Event()
        self._failed = False
        self._gone = False
        self._start_times: dict[int, float] = {}
        self._seen_exits: dict[int, tuple[float, float]] = {}
        self._endings: dict[int, Ending] = {}
        self._sent: dict[int, set[int]] = {}
        self._stopped_at: dict[int, float] = {}
        self._owner = loop.create_task(self._own(), name=f"aioelastic: {plan.name}")
        # Not at the end of _own: the end of the loop can cancel the task before its first step.
        self._owner.add_done_callback(self._leave_nobody_waiting)

    @property
    def state(self) -> GroupState:
        """Where the group stands."""
        if self.outcome.done() and not self.outcome.cancelled() and self.outcome.exception() is None:
            outcome = self.outcome.result()
            if outcome.failures:
                return GroupState.FAILED
            # A rank that left politely when it was stopped has 0 as well, and has not done its work.
            done = len(outcome.exits) == self._plan.nprocs and all(
                each.exitcode == 0 and each.cause is not ExitCause.STOPPED for each in outcome.exits.values()
            )
            return GroupState.SUCCEEDED if done else GroupState.STOPPED
        if self._owner.done():
            return GroupState.STOPPED
        if not self._started.done():
            return GroupState.STARTING
        return GroupState.RUNNING if self._stop is None else GroupState.STOPPING

    @property
    def is_over(self) -> bool:
        """Whether nobody supervises it any more."""
        return self._owner.done()

    @property
    def running(self) -> list[int]:
        """The ranks whose exit has not been seen."""
        return [rank for rank in self.processes if rank not in self._seen_exits]

    @property
    def troubles(self) -> dict[int, str]:
        """What is to be said of ranks that did not simply succeed: rank -> words."""
        exits = {rank: judge(ending) for rank, ending in self._endings.items()}
        return {
            rank: each.cause.value if each.cause is not ExitCause.ENDED else f"exited with {each.exitcode}"
            for rank, each in exits.items()
            if each.exitcode != 0
        }

    async def started(self) -> None:
        """Wait until all ranks are started.

        Raises:
            RankStartError: One could not start, and nothing is left running.
        """
        await asyncio.wait([self._started])
        if self._started.cancelled() or self._started.exception() is not None:
            await settle(self._owner)
        self._started.result()

    def request_stop(self, number: int, grace: float) -> None:
        """Have the group end: the signal now, SIGKILL after so many seconds; while it ends already, hurry that."""
        if self._gone:
            # The ranks' numbers are free by now: what has one of them could be a stranger, or a stranger's session.
            return
        deadline = self._loop.time() + (0 if number == signal.SIGKILL else grace)
        if self._stop is None:
            self._stop = StopOrder(number, deadline)
            self._news.set()
        else:
            self._stop.hurry(deadline, None if number in {self._stop.signal, signal.SIGKILL} else number)
        if self._patience is not None and not self._patience.expired():
            # Most starts take some milliseconds, and leave less behind if they are let do so.
            self._patience.reschedule(self._stop.deadline + REAP_TIMEOUT)

    async def stop(self, number: int, grace: float) -> None:
        """Have the group end, and wait until its last process is gone and its logs are closed.

        Cancellation turns it into an immediate SIGKILL; it still waits, then raises.
        """
        self.request_stop(number, grace)
        try:
            if not self._owner.done():
                await asyncio.wait([self._owner])
        except asyncio.CancelledError:
            self.request_stop(signal.SIGKILL, 0)
            await settle(self._owner)
            raise

    async def _own(self) -> None:
        try:
            if await self._start_all():
                await self._supervise()
        except BaseException as error:
            # Only the end of the event loop cancels this task, and nobody will come back to it.
            await self._abandon()
            if not isinstance(error, asyncio.CancelledError) and not self.outcome.done():
                self.outcome.set_exception(error)
            raise

    def _leave_nobody_waiting(self, _: "asyncio.Task[None]") -> None:
        self._started.cancel()
        self.outcome.cancel()
        self._events.close(Event(kind=EventKind.GROUP_ENDED, state=self.state))

    async def _start_all(self) -> bool:
        """Start all ranks, or none: then the error is with those who wait for the start."""
        try:
            self._watch.begin()
            await self._start_ranks()
        except Exception as error:  # noqa: BLE001 - whatever it is, it goes to the caller, with nothing left behind
            await backend_loaded()
            await self._abandon()
            self._started.set_exception(error)
            return False
        self._logs.flow()
        # Not while the caller goes on: a copy of the program forked by it would wait for the import for ever.
        await backend_loaded()
        self._started.set_result(None)
        if self._stop is None:
            self._events.tell(Event(kind=EventKind.GROUP_STARTED))
        return True

    async def _start_ranks(self) -> None:
        """Start one after the other; a stop ends that, soon after its deadline also for a rank whose start is stuck."""
        # Not the loop's clock: uvloop's stands still during a turn.
        turn_began = time.monotonic()
        try:
            async with asyncio.timeout(None) as self._patience:
                for rank in range(self._plan.nprocs):
                    if self._stop is not None:
                        break
                    await self._start_one(rank)
                    if time.monotonic() - turn_began >= _LONGEST_TURN:
                        await asyncio.sleep(0)
                        turn_began = time.monotonic()
        except TimeoutError:
            if self._patience is None or not self._patience.expired():
                raise
        finally:
            self._patience = None

    async def _start_one(self, rank: int) -> None:
        with self._logs.handing_over(rank) as stdio:
            self._watch.note_starting(rank)
            self._start_times[rank] = time.time()
            self.processes[rank] = await self._start_rank(rank, stdio, partial(self._see_exit, rank))
        pid = self.processes[rank].pid
        self._watch.note_started(rank, pid)
        self._events.tell(Event(kind=EventKind.RANK_STARTED, time=self._start_times[rank], rank=rank, pid=pid))
        if rank in self._seen_exits:
            self._watch.note_ended(rank)

    async def _supervise(self) -> None:
        # Not anyio's task group: cancelled before a task's first step, it drops the coroutine with a warning.
        async with asyncio.TaskGroup() as watchers:
            watching = [watchers.create_task(self._see_to(rank)) for rank in self.processes]
            while self._stop is None and not self._failed and len(self._endings) < len(self.processes):
                self._news.clear()
                await self._news.wait()
            if self._stop is None:
                deadline = self._loop.time() + self._plan.shutdown_timeout
                self._stop = StopOrder(self._plan.death_signal, deadline)
            survivors = await self._descend(self._stop)
            with anyio.move_on_after(REAP_TIMEOUT):
                while any(rank not in self._endings for rank in self.processes if rank not in survivors):
                    self._news.clear()
                    await self._news.wait()
            for watch in watching:
                watch.cancel()
        await self._logs.drain(self._drain_deadlines())
        self._watch.end()
        clean = all(each.status.code == 0 and not each.status.problem for each in self._endings.values())
        # Without a failure there is no file to be read.
        self.outcome.set_result(self._explain(survivors) if clean else await in_thread(self._explain, survivors))
        # Those who wait for the result go first: the guard's end takes a thread.
        await asyncio.sleep(0)
        await self._watch.ended()

    async def _see_to(self, rank: int) -> None:
        status = await self.processes[rank].wait_status()
        end_time, _ = self._seen_exits[rank]
        self._endings[rank] = ending = Ending(
            pid=self.processes[rank].pid,
            status=status,
            sent=frozenset(self._sent.get(rank, ())),
            stopped_at=self._stopped_at.get(rank),
            start_time=self._start_times[rank],
            end_time=end_time,
        )
        self._tell_exit(rank, ending)
        self._failed = self._failed or is_failure(ending)
        self._news.set()

    def _tell_exit(self, rank: int, ending: Ending) -> None:
        known = judge(ending)
        event = Event(
            kind=EventKind.RANK_EXITED,
            time=known.end_time,
            rank=rank,
            pid=known.pid,
            exitcode=known.exitcode,
            signal=known.signal,
            cause=known.cause,
        )
        self._events.tell(event)
        if is_failure(ending) and not self._failed:
            self._events.tell(replace(event, kind=EventKind.GROUP_FAILED, message=ending.status.problem))

    async def _descend(self, order: StopOrder) -> dict[int, list[int]]:
        if self.running:
            self._events.tell(Event(kind=EventKind.GROUP_STOPPING, signal=signal_name(order.signal)))
        survivors = await self._ladder().descend(order)
        self._gone = True
        for rank, pids in survivors.items():
            logger.warning("rank %d: SIGKILL does not end %s (uninterruptible sleep?)", rank, pids)
        return survivors

    def _see_exit(self, rank: int) -> None:
        self._seen_exits[rank] = time.time(), self._loop.time()
        self._watch.note_ended(rank)

    def _ladder(self) -> Ladder:
        return Ladder(list(self.processes.values()), self._table, self._note_signal, self._plan.swept_groups)

    def _note_signal(self, rank: int, number: int) -> None:
        sent = self._sent.setdefault(rank, set())
        if number not in sent:
            kind = EventKind.RANK_KILLED if number == signal.SIGKILL else EventKind.RANK_STOPPING
            pid = self.processes[rank].pid
            self._events.tell(Event(kind=kind, rank=rank, pid=pid, signal=signal_name(number)))
        sent.add(number)
        self._stopped_at.setdefault(rank, time.time())

    def _drain_deadlines(self) -> dict[int, float]:
        now = self._loop.time()
        return {rank: self._seen_exits.get(rank, (0, now))[1] + self._plan.drain_timeout for rank in self.processes}

    async def _abandon(self) -> None:
        """Kill what there is, at once, and close the logs; bounded."""
        with anyio.CancelScope(shield=True):
            if not self._gone:
                await self._descend(StopOrder(signal.SIGKILL, self._loop.time()))
            with anyio.move_on_after(REAP_TIMEOUT):
                for process in self.processes.values():
                    await process.wait_status()
            await self._logs.drain({})
            self._watch.end()
            await self._watch.ended()

    def _explain(self, survivors: dict[int, list[int]]) -> GroupOutcome:
        # In the order in which the kernel reported the exits; the statuses can come in another one.
        endings = {rank: self._endings[rank] for rank in self._seen_exits if rank in self._endings}
        return explain(endings, survivors, self._plan.error_files, self._plan.stderr_files)
