"""What a context gives of its ranks' output: its files and its lines."""

from aioelastic._contexts.log_claim import LogClaim
from aioelastic._contexts.supervised import Supervised
from aioelastic._errors.exceptions import ContextStateError
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.group_logs import GroupLogs
from aioelastic._logs.line_stream import LineStream
from aioelastic._logs.std import Std
from aioelastic._supervision.events import Event, EventKind


class Logged(Supervised):
    """A group whose ranks' output is in files, and can be read line by line."""

    _claim: LogClaim

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.stdouts: dict[int, str] = {}
        self.stderrs: dict[int, str] = {}
        self.error_files: dict[int, str] = {}
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

    def _take_destinations(self, dest: LogsDest, nprocs: int) -> None:
        ranks = range(nprocs)
        self.stdouts = {rank: dest.stdouts.get(rank, "") or dest.tee_stdouts.get(rank, "") for rank in ranks}
        self.stderrs = {rank: dest.stderrs.get(rank, "") or dest.tee_stderrs.get(rank, "") for rank in ranks}
        self.error_files = {rank: dest.error_files.get(rank, "") for rank in ranks}

    async def _discard_logs(self) -> None:
        self._logs = None
        await self._claim.discard()

    def _tell_detached(self, rank: int | None, words: str) -> None:
        self._events.tell(Event(kind=EventKind.SINK_DETACHED, rank=rank, message=words))
