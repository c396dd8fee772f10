"""The agent: runs a group, and runs it again when it has failed.

One task of its own owns a run::

    rendezvous: the node's place in the world
      └─▶ one attempt: a group, from its start to the end of its last process
            └─▶ succeeded, stopped, or no restart left ──▶ result
            └─▶ failed ──▶ wait a while ──▶ rendezvous ...
"""

import asyncio
import contextlib
import itertools
import os
import signal
import time
from dataclasses import replace
from typing import Final, Self

from aioelastic._agent.event_file import EventFile
from aioelastic._agent.group_watcher import GroupWatcher
from aioelastic._agent.log_places import attempt_directory, event_file_path
from aioelastic._agent.rank_environment import rank_arguments, rank_prefix, rank_variables
from aioelastic._agent.rendezvous import WorldInfo, lone_world
from aioelastic._agent.restarts import Restart, RestartPolicy
from aioelastic._agent.rounds import Rounds
from aioelastic._agent.run_result import Attempt, RunResult
from aioelastic._agent.standalone import StandaloneRendezvous
from aioelastic._agent.worker_spec import WorkerSpec
from aioelastic._base.shielding import settle
from aioelastic._contexts.checks import checked_seconds, checked_signal
from aioelastic._contexts.context import PContext
from aioelastic._contexts.results import RunProcsResult
from aioelastic._contexts.supervised import Supervised
from aioelastic._errors.exceptions import (
    ContextStateError,
    SpecificationTypeError,
    SurvivorsError,
)
from aioelastic._launch import Starting, start_processes
from aioelastic._logs.specs import DefaultLogsSpecs
from aioelastic._supervision.events import Event, EventKind, EventStream
from aioelastic._supervision.states import GroupState

_LIVELY: Final = {GroupState.STARTING, GroupState.RUNNING, GroupState.STOPPING}
"""What a group may be while its attempt goes on."""


class LocalElasticAgent(Supervised):
    """Runs a group of ranks on this node, and runs it again when it fails.

    ``await agent.run()`` is all; `close`, from any task of its event loop, ends it. It can be used in ``async with``,
    which closes it on leaving, and in `forward_signals`.

    A new attempt begins only when the last process of the one before is gone. A stop wins over a restart at every
    point: after `close` nothing is started any more.

    Each rank gets the variables that torchrun gives, so a PyTorch script finds its place.

    Args:
        spec: What to run.

    Raises:
        SpecificationTypeError: It is no `WorkerSpec`.
        SpecificationError: A group would refuse it: the same as `start_processes` raises before anything starts.

    Example:
        >>> import asyncio
        >>> from aioelastic import Backoff, LocalElasticAgent, WorkerSpec
        >>> script = 'test $TORCHELASTIC_RESTART_COUNT = 1'
        >>> spec = WorkerSpec(entrypoint="sh", args=("-c", script), local_world_size=2, backoff=Backoff(first=0))
        >>> result = asyncio.run(LocalElasticAgent(spec).run())
        >>> result.state.value, [attempt.state.value for attempt in result.attempts]
        ('succeeded', ['failed', 'succeeded'])
    """

    def __init__(self, spec: WorkerSpec) -> None:
        if not isinstance(spec, WorkerSpec):
            raise SpecificationTypeError(f"spec must be a WorkerSpec, not {type(spec).__name__}")
        super().__init__(spec.role)
        self._spec = spec
        self._logs_specs = spec.logs_specs or DefaultLogsSpecs()
        self._policy = RestartPolicy(
            max_restarts=spec.max_restarts, backoff=spec.backoff, healthy_after=spec.healthy_after
        )
        self._attempts: list[Attempt] = []
        # What a group refuses, it refuses now, and not when all nodes have come together.
        self._prepare(0, lone_world(spec.local_world_size)).close()
        self._state = GroupState.NEW
        self._stop = asyncio.Event()
        rendezvous = spec.rendezvous or StandaloneRendezvous(spec.local_world_size)
        self._rounds = Rounds(rendezvous, spec.local_world_size, self._stop)
        self._owner: asyncio.Task[RunResult] | None = None
        self._context: PContext | None = None
        self._event_file: EventFile | None = None
        self._log_dir = ""

    @property
    def spec(self) -> WorkerSpec:
        """What it runs."""
        return self._spec

    @property
    def state(self) -> GroupState:
        """Where the run stands."""
        if self._stop.is_set() and self._owner is not None and not self._owner.done():
            return GroupState.STOPPING
        state = self._state if self._context is None else self._context.state
        return state if state in _LIVELY else self._state

    @property
    def attempts(self) -> tuple[Attempt, ...]:
        """The attempts that have ended so far; they are there also when `run` has raised."""
        return tuple(self._attempts)

    async def run(self) -> RunResult:
        """Run attempts until one succeeds, the restarts are spent, or it is closed.

        Cancellation closes the agent as leaving ``async with`` does, then raises; a second one kills at once.

        Returns:
            The result; that ranks failed is no exception here, see `RunResult.raise_for_failures`. Closed before, it is
            that of a run that was stopped before its first attempt.

        Raises:
            ContextStateError: It was run before.
            RankStartError: A rank could not start; nothing is left running. The attempts before are in `attempts`, as
                with every other exception.
            RendezvousError: The rendezvous gave no place that the ranks could take.
            SurvivorsError: The group failed and would be run again, but a process of it cannot be killed.
            AioelasticError: Whatever else `start_processes` raises, for any attempt.
            Exception: What the rendezvous raises.
        """
        if self._owner is not None:
            raise ContextStateError(f"agent {self.name!r} was run before: make a new LocalElasticAgent")
        self._owner = asyncio.get_running_loop().create_task(self._own(), name=f"aioelastic: run {self.name}")
        try:
            await asyncio.wait([self._owner])
        except asyncio.CancelledError:
            try:
                await self.close()
            finally:
                if self._owner.done() and not self._owner.cancelled():
                    # Asked for, or asyncio would report it as an exception that nobody wanted.
                    self._owner.exception()
            raise
        return self._owner.result()

    async def close(self, death_sig: signal.Signals | None = None, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the seed's name
        """End the run: the ranks as `PContext.close` does it, and no further attempt.

        It may be called at any time, any number of times, by several tasks at once.

        Cancellation turns it into an immediate SIGKILL; it still reaps, then raises.

        Args:
            death_sig: The first signal; the spec's ``death_sig`` when not given. SIGKILL comes without a grace.
            timeout: Seconds from the first signal to SIGKILL; the spec's ``shutdown_timeout`` when not given.

        Raises:
            SpecificationError: No such signal, or a negative timeout.
        """
        number = self._spec.death_sig if death_sig is None else death_sig
        checked_signal("death_sig", number)
        grace = self._spec.shutdown_timeout if timeout is None else checked_seconds("timeout", timeout)
        self._stop.set()
        if self._owner is None:
            self._end(GroupState.STOPPED)
            return
        try:
            if self._context is not None:
                await self._context.close(number, grace)
            if not self._owner.done():
                await asyncio.wait([self._owner])
        except asyncio.CancelledError:
            if self._context is not None:
                await settle(asyncio.ensure_future(self._context.close(signal.SIGKILL)))
            await settle(self._owner)
            raise

    async def __aenter__(self) -> Self:
        return self

    def __repr__(self) -> str:
        ended = f", {len(self._attempts)} ended" if self._attempts else ""
        group = "" if self._context is None else f", {self._context!r}"
        return f"<{type(self).__name__} {self.name!r}: {self.state.value}{ended}{group}>"

    async def _own(self) -> RunResult:
        self._event_file = EventFile(self.events())
        try:
            result = await self._run_attempts()
        except BaseException as error:
            ended = isinstance(error, asyncio.CancelledError)  # by the end of the event loop
            self._end(GroupState.STOPPED if ended else GroupState.FAILED, "" if ended else str(error))
            raise
        else:
            self._end(result.state)
            return result
        finally:
            await self._event_file.close()

    def _end(self, state: GroupState, message: str = "") -> None:
        self._state = state
        self._events.close(Event(kind=EventKind.RUN_ENDED, state=state, message=message))

    async def _run_attempts(self) -> RunResult:
        start_time, begin = time.time(), asyncio.get_running_loop().time()
        values: dict[int, object] = {}
        restart = Restart(0, 0.0)
        for count in itertools.count():
            self._state = GroupState.STARTING
            world = await self._rounds.next()
            if world is None:
                break
            number = count if world.attempt is None else world.attempt
            attempt, lifetime, values = await self._attempt(number, world, restart.delay)
            self._attempts.append(attempt)
            following = self._after(attempt, restart.used, lifetime)
            if following is None:
                return self._result(attempt.state, values, start_time, begin)
            restart = following
            await self._wait_for(restart.delay, number + 1)
            if self._stop.is_set():
                break
        return self._result(GroupState.STOPPED, values, start_time, begin)

    def _after(self, attempt: Attempt, used: int, lifetime: float) -> Restart | None:
        """Decide whether there is another attempt after this one; a stop comes in afterwards."""
        if attempt.state is not GroupState.FAILED:
            return None
        # Not the module random: it takes 5 ms to import.
        chance = int.from_bytes(os.urandom(4), "big") / 0xFFFFFFFF
        restart = self._policy.after_failure(used, lifetime, chance)
        if restart is not None and attempt.survivors and not self._stop.is_set():
            raise SurvivorsError(attempt.number, attempt.survivors)
        return restart

    async def _wait_for(self, delay: float, number: int) -> None:
        """Wait before the next attempt; a stop ends that."""
        if self._stop.is_set():
            return
        self._state = GroupState.RESTARTING
        self._events.tell(Event(kind=EventKind.RESTART_PLANNED, attempt=number, delay=delay))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(delay):
                await self._stop.wait()

    async def _attempt(self, number: int, world: WorldInfo, delay: float) -> tuple[Attempt, float, dict[int, object]]:
        """Run the group once, until nothing of it is left; give its record, its lifetime (seconds) and its values."""
        start_time, begin = time.time(), asyncio.get_running_loop().time()
        message = f"run {world.run_id}"
        self._events.tell(Event(kind=EventKind.ATTEMPT_STARTED, time=start_time, attempt=number, message=message))
        try:
            starting = self._prepare(number, world)
            self._context = context = starting.context
            watching = GroupWatcher(context, self._spec.straggler_timeout)
            relay = asyncio.ensure_future(self._relay(context.events(), watching, world, number))
            try:
                result = await self._until_ended(starting)
            finally:
                await context.close()
                await asyncio.wait([relay])
                self._context = None
                # Again, for a start that was given up after its first rank, or while we were about to hear of its end.
                if context.error_files:
                    self._note_logs(context)
            relay.result()
        except Exception as error:
            ended = Event(kind=EventKind.ATTEMPT_ENDED, attempt=number, state=GroupState.FAILED, message=str(error))
            self._events.tell(ended)
            raise
        attempt = Attempt.of_group(
            result,
            number=number,
            state=watching.state,
            world=world,
            log_dir=attempt_directory(self._logs_specs, context),
            start_time=start_time,
            duration=asyncio.get_running_loop().time() - begin,
            delay=delay,
        )
        self._events.tell(Event(kind=EventKind.ATTEMPT_ENDED, attempt=number, state=attempt.state))
        return attempt, watching.lifetime(begin), world.by_global_rank(result.return_values)

    async def _until_ended(self, starting: Starting) -> RunProcsResult:
        """Start a group and give its result; an empty one if it was closed before its first rank."""
        context = starting.context
        try:
            await starting
            self._note_logs(context)
            return await context.wait()
        except ContextStateError:
            # Closed while it was starting: by us, or it is a mistake that must be seen.
            if not self._stop.is_set():
                raise
        try:
            return await context.wait(0) or RunProcsResult()
        except ContextStateError:  # it had not come to its first rank
            return RunProcsResult()

    def _prepare(self, number: int, world: WorldInfo) -> Starting:
        """Make the group of one attempt."""
        spec = self._spec
        ranks = range(spec.local_world_size)
        inherited = dict(os.environ)
        return start_processes(
            spec.role,
            spec.entrypoint,
            {rank: rank_arguments(spec.args, rank) for rank in ranks},
            {rank: rank_variables(spec, world, rank, number, inherited) for rank in ranks},
            self._logs_specs,
            {
                rank: rank_prefix(spec.log_line_prefix_template, spec.role, world.base_rank + rank, rank)
                for rank in ranks
            },
            spec.start_method,
            spec.numa_options,
            spec.duplicate_stdout_filters,
            spec.duplicate_stderr_filters,
            cwd=spec.cwd,
            death_sig=spec.death_sig,
            shutdown_timeout=spec.shutdown_timeout,
            drain_timeout=spec.drain_timeout,
        )

    def _note_logs(self, context: PContext) -> None:
        """Note where the logs are."""
        path = event_file_path(self._logs_specs, context)
        directory = os.path.dirname(path)  # noqa: PTH120 - a path as text, as it was given
        # A start that was given up, and that has logged nothing, has left no directory.
        if not self._log_dir and os.path.isdir(directory) and self._event_file is not None:  # noqa: PTH112 - see above
            self._log_dir = directory
            self._event_file.open(path)

    async def _relay(self, events: EventStream, watching: GroupWatcher, world: WorldInfo, number: int) -> None:
        """Tell what the group tells, with global ranks."""
        async for event in events:
            watching.look_at(event)
            if event.kind is not EventKind.GROUP_ENDED:
                rank = None if event.rank is None else world.base_rank + event.rank
                self._events.tell(replace(event, rank=rank, attempt=number))
        await watching.end()

    def _result(self, state: GroupState, values: dict[int, object], start_time: float, begin: float) -> RunResult:
        return RunResult(
            state,
            values,
            self._attempts[-1].failures if self._attempts else {},
            attempts=tuple(self._attempts),
            name=self.name,
            log_dir=self._log_dir,
            start_time=start_time,
            end_time=time.time(),
            duration=asyncio.get_running_loop().time() - begin,
        )
