"""What the caller holds of a group: `PContext`."""

import asyncio
import os
import signal
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, overload

from aioelastic._base.aliases import Environment
from aioelastic._base.defaults import DEATH_SIGNAL, DRAIN_TIMEOUT, GUARD_GRACE, REAP_TIMEOUT, SHUTDOWN_TIMEOUT
from aioelastic._base.shielding import settle
from aioelastic._base.threads import in_thread
from aioelastic._contexts.checks import checked_limit, checked_name, checked_seconds, checked_signal
from aioelastic._contexts.logged import Logged
from aioelastic._contexts.results import RunProcsResult
from aioelastic._errors.error_files import ERROR_FILE_VARIABLE
from aioelastic._errors.exceptions import ContextStateError, RankStartError
from aioelastic._guard.guard import GroupWatch, Unwatched, watch_group
from aioelastic._guard.ledger import Terms
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.group_logs import GroupLogs, StreamName
from aioelastic._logs.lines import FilterEntry
from aioelastic._logs.specs import LogsSpecs
from aioelastic._numa.options import NumaOptions, check_numa_options
from aioelastic._processes.command_line import group_size, rank_environment
from aioelastic._processes.rank_process import RankProcess
from aioelastic._processes.system_table import SystemTable
from aioelastic._processes.tokens import new_group_token, token_of_rank, token_variable
from aioelastic._supervision.events import Event, EventKind
from aioelastic._supervision.group import Group, GroupPlan
from aioelastic._supervision.states import GroupState

if TYPE_CHECKING:
    from aioelastic._numa.binding import Binder


class PContext(Logged):
    """A group of ranks: started, waited for and closed, by the same task or by different ones.

    It is made by `start_processes`. Leaving ``async with`` closes it; entering starts it if that has not happened,
    or waits until another task has started it.

    Attributes:
        name: The group's name.
        nprocs: The number of ranks.
        stdouts: Rank -> path of its stdout log, ``""`` for the console; known once it is started.
        stderrs: Rank -> path of its stderr log, ``""`` for the console; known once it is started.
        error_files: Rank -> path of its error file, ``""`` for none; known once it is started.
    """

    def __init__(
        self,
        name: str,
        entrypoint: Any,
        args: Mapping[int, Any],
        envs: Mapping[int, Environment] | None,
        logs_specs: LogsSpecs,
        log_line_prefixes: Mapping[int, str] | None = None,
        numa_options: NumaOptions | None = None,
        duplicate_stdout_filters: Sequence[FilterEntry] | None = None,
        duplicate_stderr_filters: Sequence[FilterEntry] | None = None,
        *,
        death_sig: signal.Signals = DEATH_SIGNAL,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT,
        drain_timeout: float = DRAIN_TIMEOUT,
        orphan_guard: bool = True,
        sweep_descendants: bool = True,
    ) -> None:
        filters = duplicate_stdout_filters, duplicate_stderr_filters
        super().__init__(checked_name(name), group_size(args, envs), logs_specs, log_line_prefixes, *filters)
        self._entrypoint = entrypoint
        self._args = dict(args)
        own = {rank: (envs or {}).get(rank) for rank in range(self.nprocs)}
        for rank, env in own.items():
            rank_environment({}, env, rank)
        self._envs: dict[int, Environment] = {rank: dict(env or {}) for rank, env in own.items()}
        self._numa_options = check_numa_options(numa_options)
        self._binder: Binder | None = None
        self._death_signal = checked_signal("death_sig", death_sig)
        self._shutdown_timeout = checked_seconds("shutdown_timeout", shutdown_timeout)
        self._drain_timeout = checked_seconds("drain_timeout", drain_timeout)
        self._is_guarded = orphan_guard
        self._sweeps = sweep_descendants
        self._cwd: str | None = None
        self._token = new_group_token()
        self._inherited: dict[str, str] = {}
        self._starting: asyncio.Task[None] | None = None
        self._group: Group | None = None
        self._closed = False
        self._result: RunProcsResult | None = None

    @property
    def cpus(self) -> dict[int, frozenset[int]]:
        """The CPUs that ranks were bound to, by rank, as the kernel says; ranks left unbound are not in it."""
        return {} if self._binder is None else dict(self._binder.applied)

    @property
    def state(self) -> GroupState:
        """Where the group stands."""
        if self._group is not None:
            return self._group.state
        if self._closed or self._failed_start():
            return GroupState.STOPPED
        return GroupState.NEW if self._starting is None else GroupState.STARTING

    def pids(self) -> dict[int, int]:
        """Give the process ids of the started ranks, those that have ended included.

        Returns:
            Rank -> pid.
        """
        return {} if self._group is None else {rank: each.pid for rank, each in self._group.processes.items()}

    async def start(self) -> None:
        """Start all ranks, or none.

        `start_processes` has done it for you.

        Cancellation leaves nothing: what was started is killed and reaped first. A disk, or a ``reify``, that is stuck
        is left alone after some seconds.

        Raises:
            ContextStateError: It was started or closed before, or is closed meanwhile.
            RankStartError: A rank or its log could not be started or opened; nothing is left running.
            DescriptorLimitError: The limit of open files cannot hold the group.
            OSError: The log directory cannot be used.
        """
        if self._starting is not None or self._closed:
            what = "was closed" if self._closed else "was started before"
            raise ContextStateError(f"context {self.name!r} {what}: make a new one with start_processes()")
        self._starting = asyncio.get_running_loop().create_task(self._start(), name=f"aioelastic: start {self.name}")
        try:
            await asyncio.wait([self._starting])
        except asyncio.CancelledError:
            await self._abort_start(self._starting)
            raise
        if self._starting.cancelled():
            self._refuse_if_closed()
        self._starting.result()

    @overload
    async def wait(self, timeout: None = None) -> RunProcsResult: ...  # noqa: ASYNC109 - the seed's name
    @overload
    async def wait(self, timeout: float | None) -> RunProcsResult | None: ...  # noqa: ASYNC109 - the seed's name
    async def wait(self, timeout: float | None = None) -> RunProcsResult | None:  # noqa: ASYNC109 - the seed's name
        """Wait until all ranks have succeeded, or one has failed and all others are stopped.

        By then every stream is at its end (or ``drain_timeout`` after its rank's exit), and the files are closed. Any
        number of tasks may wait, and again after the end.

        Cancellation ends only this wait; the group goes on.

        Args:
            timeout: Seconds to wait; 0 asks without waiting, ``None`` or a negative number means no limit.

        Returns:
            The result, or ``None`` when the time is over first.

        Raises:
            ContextStateError: It was never started, or the event loop that supervises it is gone, or another one.

        Example:
            >>> import asyncio
            >>> from aioelastic import start_processes
            >>> async def main() -> int | None:
            ...     async with start_processes("echo", "true", args={0: (), 1: ()}) as context:
            ...         result = await context.wait(timeout=10)
            ...     return result.exits[1].exitcode
            >>> asyncio.run(main())
            0
        """
        limit = checked_limit("timeout", timeout)
        group = self._group
        if group is None:
            raise ContextStateError(f"context {self.name!r} is {self.state.value}: call start() before wait()")
        if not group.outcome.done() and limit != 0:
            self._require_loop()
            await asyncio.wait([group.outcome], timeout=limit)
        if not group.outcome.done():
            return None
        if group.outcome.cancelled():
            why = "it did not start" if self._failed_start() else "the event loop that supervised it ended"
            raise ContextStateError(f"context {self.name!r} has no result: {why}")
        if self._result is None:
            outcome = group.outcome.result()
            self._result = RunProcsResult(
                return_values=self._return_values(),
                failures=outcome.failures,
                stdouts=self.stdouts,
                stderrs=self.stderrs,
                exits=outcome.exits,
                survivors=outcome.survivors,
                name=self.name,
            )
        return self._result

    async def close(self, death_sig: signal.Signals | None = None, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the seed's name
        """End the group: signal every rank, wait, kill what is left, reap it, end the logs.

        What a rank left behind, in its session or outside of it, is ended in the same way, also when the rank itself
        has succeeded. It may be called any number of times, by several tasks at once; a shorter timeout hurries a close
        under way.

        Cancellation turns it into an immediate SIGKILL; it still reaps, then raises.

        Args:
            death_sig: The first signal; the context's ``death_sig`` when not given. SIGKILL comes without a grace.
            timeout: Seconds from the first signal to SIGKILL, for all ranks together; the context's
                ``shutdown_timeout`` when not given.

        Raises:
            SpecificationError: No such signal, or a negative timeout.
            ContextStateError: It is supervised by another event loop.
        """
        number = self._death_signal if death_sig is None else checked_signal("death_sig", death_sig)
        grace = self._shutdown_timeout if timeout is None else checked_seconds("timeout", timeout)
        self._require_loop()
        self._closed = True
        if self._starting is not None and not self._starting.done() and self._group is None:
            await self._give_up(self._starting)
        if self._group is not None:
            try:
                await self._group.stop(number, grace)
            finally:
                await self._claim.tidy(logged=any(self.stdouts.values()) or any(self.stderrs.values()))
        else:
            self._end_events()

    async def __aenter__(self) -> Self:
        if self._starting is None:
            await self.start()
            return self
        # Once it runs, nothing is awaited: a cancellation here would leave it to nobody.
        if not self._starting.done():
            self._require_loop()
            # By another task perhaps, which goes on with it if this one is cancelled.
            await asyncio.wait([self._starting])
        if self._failed_start():
            raise ContextStateError(f"context {self.name!r} did not start: whoever has started it knows why")
        return self

    def __repr__(self) -> str:
        words = [f"<{type(self).__name__} {self.name!r}: {self.state.value}"]
        if self._group is not None:
            running = self._group.running
            words.append(f"{len(running)} of {self.nprocs} ranks running")
            words += [f"rank {rank} {words_of_exit}" for rank, words_of_exit in self._group.troubles.items()]
        return ", ".join(words) + ">"

    @abstractmethod
    def _prepare(self) -> None:
        """Check what the disk knows about the ranks' programs, before anything is made (blocking)."""

    @abstractmethod
    def _command(self, rank: int) -> tuple[str, ...]:
        """Give what an error calls a rank's command."""

    @abstractmethod
    async def _start_rank(
        self, rank: int, stdio: Mapping[StreamName, int | None], on_exit: Callable[[], None]
    ) -> RankProcess:
        """Start one rank, with the given descriptors as its stdout and stderr (``None``: inherit)."""

    def _binding(self, rank: int) -> Callable[[int], None] | None:
        """Give what binds a rank's process, or ``None`` for no binding."""
        return None if self._binder is None else self._binder.binding_of(rank)

    def _return_values(self) -> dict[int, Any]:
        """Give what functions have returned: rank -> value."""
        return {}

    def _environment(self, rank: int) -> dict[str, str]:
        """Give a rank's variables; without an error file it must not inherit the supervisor's own."""
        token = token_variable(token_of_rank(self._token, rank), self._inherited)
        own = {**token, **self._envs[rank], ERROR_FILE_VARIABLE: self.error_files.get(rank) or None}
        return rank_environment(self._inherited, own, rank)

    async def _start(self) -> None:
        # Once for all ranks: os.environ decodes each variable whenever it is read.
        self._inherited = dict(os.environ)
        try:
            dest = await in_thread(self._prepare_and_reify)
            await self._start_with(dest)
        except BaseException as error:
            if isinstance(error, RankStartError) and not error.command:  # what opens logs knows of none
                error.command, error.cwd = self._command(error.local_rank), self._cwd
            try:
                await self._discard_logs()
            finally:
                self._end_events()
            raise

    def _prepare_and_reify(self) -> LogsDest:
        self._prepare()
        if self._numa_options is not None:
            # Rank 0's own variables hide accelerators too; those of all ranks are the same in this in practice.
            from aioelastic._numa.binding import plan_binding  # noqa: PLC0415 - few groups need it

            environ = rank_environment(self._inherited, self._envs.get(0), 0)
            self._binder = plan_binding(self._numa_options, self.nprocs, environ)
        return self._reify(self._envs)

    async def _start_with(self, dest: LogsDest) -> None:
        logs = await self._open_logs(dest)
        plan = GroupPlan(
            name=self.name,
            nprocs=self.nprocs,
            death_signal=self._death_signal,
            shutdown_timeout=self._shutdown_timeout,
            drain_timeout=self._drain_timeout,
            error_files=self.error_files,
            stderr_files=self.stderrs,
            swept_groups=[self._token] if self._sweeps else (),
        )
        try:
            self._refuse_if_closed()
            self._group = Group(plan, logs, self._start_rank, SystemTable(), self._watch(logs), self._events)
            await self._group.started()
        except BaseException:
            # The group has done it, unless the end of the loop has cancelled it before its first step.
            await logs.drain({})
            raise
        if self._closed:
            # By another task, between two ranks perhaps: no running group is given out, and none is left behind.
            await asyncio.wait([self._group.outcome])
            self._refuse_if_closed()

    def _watch(self, logs: GroupLogs) -> GroupWatch:
        if not self._is_guarded:
            return Unwatched()
        grace = min(self._shutdown_timeout, GUARD_GRACE)
        return watch_group(self.name, self._token, Terms(self._death_signal, grace, self._sweeps), logs.pumped)

    async def _abort_start(self, starting: "asyncio.Task[None]") -> None:
        """End a start whose caller was cancelled, and whatever it has brought up."""
        self._closed = True
        if self._group is not None:
            self._group.request_stop(signal.SIGKILL, 0)
        await settle(asyncio.ensure_future(self._undo_start(starting)))

    async def _undo_start(self, starting: "asyncio.Task[None]") -> None:
        if self._group is None:
            await self._give_up(starting)
        await asyncio.wait([starting])
        if not starting.cancelled():
            # Asked for, or asyncio would report the refusal of a closed context as an exception that nobody wanted.
            starting.exception()
        if self._group is not None:
            await self._group.stop(signal.SIGKILL, 0)
        await self._discard_logs()

    async def _give_up(self, starting: "asyncio.Task[None]") -> None:
        """See the start of a closed context, which has no rank yet, to its end; what is stuck is left to its thread."""
        await asyncio.wait([starting], timeout=REAP_TIMEOUT)
        while not starting.done():
            # A disk that does not answer, or a reify() of anybody's.
            starting.cancel()
            await asyncio.wait([starting], timeout=REAP_TIMEOUT)

    def _end_events(self) -> None:
        self._events.close(Event(kind=EventKind.GROUP_ENDED, state=GroupState.STOPPED))

    def _failed_start(self) -> bool:
        starting = self._starting
        return starting is not None and starting.done() and (starting.cancelled() or starting.exception() is not None)

    def _require_loop(self) -> None:
        """See that the running loop is the one of the group: a wait in another one might never end.

        Raises:
            ContextStateError: It is another one.
        """
        starting = self._starting
        is_over = starting is None or (starting.done() and (self._group is None or self._group.is_over))
        if starting is not None and not is_over and starting.get_loop() is not asyncio.get_running_loop():
            raise ContextStateError(
                f"context {self.name!r} lives in another event loop: wait for it, and close it, in that one"
            )

    def _refuse_if_closed(self) -> None:
        if self._closed:
            raise ContextStateError(f"context {self.name!r} was closed while it was being started")
