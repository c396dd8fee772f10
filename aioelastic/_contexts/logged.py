"""What a context gives of its ranks' output: its files and its lines."""

from collections.abc import Mapping, Sequence

from aioelastic._base.aliases import Environment
from aioelastic._contexts.checks import check_logs_specs, checked_prefixes
from aioelastic._contexts.descriptors import check_descriptors
from aioelastic._contexts.log_claim import LogClaim, checked_destinations, set_aside_earlier_errors
from aioelastic._contexts.supervised import Supervised
from aioelastic._errors.exceptions import ContextStateError
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.group_logs import GroupLogs, StreamName
from aioelastic._logs.line_stream import LineStream
from aioelastic._logs.lines import FilterEntries, FilterEntry, check_filters
from aioelastic._logs.routes import route_group
from aioelastic._logs.specs import LogsSpecs
from aioelastic._logs.std import Std
from aioelastic._supervision.events import Event, EventKind


class Logged(Supervised):
    """A group whose ranks' output is in files, and can be read line by line.

    Args:
        name: The group's name.
        nprocs: The number of ranks.
        logs_specs: Where their output goes.
        prefixes: Rank -> what stands before its lines on the console.
        stdout_filters: What the filtered copy of stdout looks for.
        stderr_filters: What the filtered copy of stderr looks for.
    """

    _descriptors_per_rank = 1
    """Descriptors that one rank takes in the supervisor beyond its output: the handle by which its exit is seen."""

    def __init__(
        self,
        name: str,
        nprocs: int,
        logs_specs: LogsSpecs,
        prefixes: Mapping[int, str] | None,
        stdout_filters: Sequence[FilterEntry] | None,
        stderr_filters: Sequence[FilterEntry] | None,
    ) -> None:
        super().__init__(name)
        self.nprocs = nprocs
        self.stdouts: dict[int, str] = {}
        self.stderrs: dict[int, str] = {}
        self.error_files: dict[int, str] = {}
        check_logs_specs(logs_specs, nprocs)
        self._logs_specs = logs_specs
        self._claim = LogClaim(logs_specs)
        self._prefixes = checked_prefixes(name, prefixes, nprocs)
        self._filters: dict[StreamName, FilterEntries] = {
            "stdout": check_filters("duplicate_stdout_filters", stdout_filters),
            "stderr": check_filters("duplicate_stderr_filters", stderr_filters),
        }
        self._logs_wait_for_start = False
        self._logs: GroupLogs | None = None

    def lines(
        self, rank: int | None = None, stream: Std | None = None, *, from_start: bool = False, last: int = 0
    ) -> LineStream:
        """Give the lines that the ranks write from now on; to be called in the event loop's thread.

        They are read from the log files of streams that are redirected or teed, so a reader never holds up a rank: one
        that is slow finds the rest in the files. What goes to the console only, or nowhere, cannot be read. The stream
        ends when the group has ended and every line was given, the last one also without a line end. A line that has
        begun before now and ends after it is given as a whole.

        It can be called again after the end, as long as the files are there.

        Args:
            rank: Whose lines; all ranks' when not given.
            stream: `Std.OUT` or `Std.ERR`; both when not given.
            from_start: Begin with the first line of each stream.
            last: Begin with so many of the last lines of each stream.

        Returns:
            An async iterator of `LogLine`; each call gives a new one, with a pace of its own.

        Raises:
            ContextStateError: The group was not started, or its start has failed.
            RanksError: There is no such rank.
            SpecificationError: No such stream, nothing of what is asked for goes to a file of its own, a negative
                ``last``, or one with ``from_start``.
            OSError: The system gives no way to watch a file that a rank writes itself (inotify's limits).

        Example:
            >>> import asyncio
            >>> from aioelastic import DefaultLogsSpecs, Std, start_processes
            >>> async def main() -> None:
            ...     specs = DefaultLogsSpecs(redirects=Std.ALL)
            ...     args = {0: ("-c", "echo one; echo two")}
            ...     async with start_processes("job", "sh", args=args, logs_specs=specs) as context:
            ...         async for line in context.lines(from_start=True):
            ...             print(line.rank, line.stream.name, line.text)
            >>> asyncio.run(main())
            0 OUT one
            0 OUT two
        """
        if self._logs is None:
            raise ContextStateError(f"context {self.name!r} is {self.state.value}: call start() before lines()")
        from aioelastic._logs.log_readers import read_lines  # noqa: PLC0415 - few programs need it

        return read_lines(self._logs.files, rank, stream, from_start=from_start, last=last)

    def _reify(self, envs: Mapping[int, Environment]) -> LogsDest:
        """Have the destinations of all output made (blocking)."""
        dest = checked_destinations(
            self._logs_specs.reify({rank: dict(env) for rank, env in envs.items()}), self.nprocs
        )
        if self._claim.note(dest):
            # Not for a group that was given up: by now they can be those of the next one.
            set_aside_earlier_errors(dest)
        return dest

    async def _open_logs(self, dest: LogsDest) -> GroupLogs:
        """Open what the ranks' output goes to; from then on it is known where that is."""
        ranks = range(self.nprocs)
        self.stdouts = {rank: dest.stdouts.get(rank, "") or dest.tee_stdouts.get(rank, "") for rank in ranks}
        self.stderrs = {rank: dest.stderrs.get(rank, "") or dest.tee_stderrs.get(rank, "") for rank in ranks}
        self.error_files = {rank: dest.error_files.get(rank, "") for rank in ranks}
        routes = route_group(
            dest,
            self.nprocs,
            self._logs_specs.local_ranks_filter,
            stdout_filtered=bool(self._filters["stdout"]),
            stderr_filtered=bool(self._filters["stderr"]),
        )
        check_descriptors(routes, self._descriptors_per_rank)
        wait = self._logs_wait_for_start
        logs = GroupLogs(routes, self._prefixes, self._filters, wait_for_start=wait, on_detached=self._tell_detached)
        self._claim.hold()
        try:
            await logs.open(self._claim.release)
        except BaseException:
            await logs.drain({})
            raise
        self._logs = logs
        return logs

    async def _discard_logs(self) -> None:
        """Forget the output of a group that did not start, and remove what is empty of it."""
        self._logs = None
        await self._claim.discard()

    def _tell_detached(self, rank: int | None, words: str) -> None:
        self._events.tell(Event(kind=EventKind.SINK_DETACHED, rank=rank, message=words))
