"""All the output of one group: opens what its streams need, hands it to the ranks, sees the streams to their end."""

import asyncio
import contextlib
import fcntl
import os
import stat
import threading
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from functools import partial
from typing import Literal, TypeVar

import anyio

from aioelastic._base.defaults import PIPE_BYTES
from aioelastic._base.heap import keep_freed_buffers
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._base.threads import BlockingThreads, Mailbox, in_thread
from aioelastic._errors.exceptions import RankStartError
from aioelastic._logs.buffers import RankFile, Spool, SpooledFile, open_spool
from aioelastic._logs.consoles import Console, acquire_console
from aioelastic._logs.copies import ConsoleTarget, CopyTarget, FilterTarget, StreamCopy, coloured
from aioelastic._logs.file_intake import FileIntake
from aioelastic._logs.files import open_log
from aioelastic._logs.intakes import Intake, LoopIntake
from aioelastic._logs.lines import FilterEntry, LineCutter, LineFilter
from aioelastic._logs.log_files import Bell, LogFile, LogFiles, Place
from aioelastic._logs.outlets import FileSink, Outlet
from aioelastic._logs.pump import StreamPump
from aioelastic._logs.routes import RankRoutes, Route, Way
from aioelastic._logs.std import Std
from aioelastic._logs.turns import Turns

_THREADS = 32
"""Files that may block at the same time before the others wait for one another."""

_PIPE_BUDGET = 16 * PIPE_BYTES
"""Bytes of pipe buffers for one group: the kernel shrinks all new pipes of a user who has 64 MiB of them."""

_DEFAULT_PIPE_BYTES = 64 * 1024
"""What a pipe holds unless asked for more (pipe(7))."""

_FLUSH_TIMEOUT = 1.0
"""Seconds for files to be flushed and closed after their streams were cut."""

_LAST_MOMENT = 0.1
"""Seconds for a copy to end after the deadline of a stream that has ended itself: its outlet is slow."""

_Key = TypeVar("_Key", bound=Hashable)

StreamName = Literal["stdout", "stderr"]
STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")
_STDS: dict[StreamName, Std] = {"stdout": Std.OUT, "stderr": Std.ERR}


class GroupLogs:
    """The output of one group, from `open` to `drain`.

    Args:
        routes: The ways of each rank's streams.
        prefixes: Rank -> what stands before its lines.
        filters: What the filtered copies look for.
        wait_for_start: Leave what the ranks write in their pipes until `flow` is called.
        on_detached: Told, on the loop, of which rank a destination has failed (``None`` for one that several share),
            which one and how.

    Attributes:
        files: The ranks' log files, for who reads lines from them.
    """

    def __init__(
        self,
        routes: Sequence[RankRoutes],
        prefixes: Mapping[int, str],
        filters: Mapping[StreamName, Sequence[FilterEntry]],
        *,
        wait_for_start: bool = False,
        on_detached: Callable[[int | None, str], None] | None = None,
    ) -> None:
        self._routes = routes
        self._prefixes = prefixes
        self._filters = filters
        self._threads = BlockingThreads("aioelastic: log files", _THREADS)
        self._mailbox = Mailbox()
        self._turns = Turns()
        self._on_detached = on_detached
        self._note_shared_failure = partial(self._note_failure, None)
        self._opening = threading.Lock()
        self._drained = False
        self._files: dict[tuple[int, StreamName], int] = {}
        self._spools: dict[tuple[int, StreamName], int] = {}
        self._filtered_files: dict[StreamName, int] = {}
        self._filtered: dict[StreamName, Outlet] = {}
        self._consoles: dict[StreamName, Console] = {}
        self._pumps: dict[int, list[StreamPump]] = {}
        self._flowing = not wait_for_start
        self.files = LogFiles(
            {
                (rank, _STDS[stream]): getattr(ways, stream).file
                for rank, ways in enumerate(routes)
                for stream in STREAMS
            }
        )
        pumped = sum(route.way is Way.PUMP for ways in routes for route in ways)
        self._pipe_bytes = min(PIPE_BYTES, _PIPE_BUDGET // max(1, pumped))

    async def open(self, on_opened: Callable[[], None] = lambda: None) -> None:
        """Open every file and console that the group needs; `drain` closes them, also after a failure here.

        Args:
            on_opened: Called as soon as no more files are opened, be it since one cannot be; also after a cancellation,
                which leaves a thread at it. In that thread, if there is one.

        Raises:
            RankStartError: A file cannot be opened.
        """
        opens = any(route.file or route.way is Way.PUMP for ways in self._routes for route in ways)
        filtered: dict[StreamName, str] = {}
        if opens:
            filtered = await in_thread(self._open_files, on_opened)
        else:
            on_opened()
        for stream, path in filtered.items():
            sink = FileSink(self._filtered_files.pop(stream), f"filtered copy {path!r}")
            self._filtered[stream] = Outlet(sink, self._threads.submit, self._note_shared_failure)
        for stream in STREAMS:
            if any(getattr(ways, stream).console for ways in self._routes):
                console = acquire_console(stream)
                if console is not None:
                    self._consoles[stream] = console
                    console.listen(self._note_shared_failure)

    @contextlib.contextmanager
    def handing_over(self, rank: int) -> Iterator[dict[StreamName, int | None]]:
        """Give what a rank gets as stdout and stderr while it starts; afterwards the supervisor's ends are closed.

        The pumps of a rank that does not start see the end of its pipes at once, and end.
        """
        with contextlib.ExitStack() as handed:
            try:
                stdio = {stream: self._hand_over(rank, stream, handed) for stream in STREAMS}
            except OSError as error:
                raise RankStartError(rank, (), None, error, doing="get a way for its output") from error
            yield stdio

    def pumped(self, rank: int) -> list[tuple[int, int]]:
        """Give the pipes of a rank's streams that were handed over and have not ended, for who outlives us.

        Returns:
            For each stream the reading end, and a file that what is in the pipe can be appended to: the rank's log
            file, or a nameless one where that is no regular file.
        """
        pumps = self._pumps.get(rank, [])
        return [(pump.intake.source, pump.intake.file) for pump in pumps if not pump.at_end.done()]

    def flow(self) -> None:
        """Let the pumps work, if they had to wait: all ranks are started."""
        if not self._flowing:
            self._flowing = True
            for pumps in self._pumps.values():
                for pump in pumps:
                    pump.begin()

    async def drain(self, deadlines: Mapping[int, float]) -> None:
        """See all streams to their end, within bounds, and close everything.

        After a cancellation it can be called again, and goes on where it was.

        Args:
            deadlines: Rank -> loop time at which its streams are cut although somebody still holds them.
        """
        now = anyio.current_time()
        async with anyio.create_task_group() as streams:
            for rank, pumps in self._pumps.items():
                for pump in pumps:
                    streams.start_soon(_see_to_end, pump, deadlines.get(rank, now))
        self.files.close()
        with self._opening:
            self._drained = True
            for unused in (self._files, self._spools, self._filtered_files):
                while unused:
                    close_private(unused.popitem()[1])
        for outlet in self._filtered.values():
            outlet.close()
        await self._threads.close()
        for outlet in self._filtered.values():
            await outlet.abandon()
        while self._consoles:
            # Out of the list first: whatever happens meanwhile, a console is released once.
            await self._consoles.popitem()[1].release(self._note_shared_failure)

    def _note_failure(self, rank: int | None, words: str) -> None:
        """Pass on, from any thread, that a destination has failed."""
        if self._on_detached is not None:
            self._mailbox.post(partial(self._on_detached, rank), words)

    def _open_files(self, on_opened: Callable[[], None]) -> dict[StreamName, str]:
        """Open all files at once (blocking); give the paths of the filtered copies."""
        try:
            return self._open_each()
        finally:
            on_opened()

    def _open_each(self) -> dict[StreamName, str]:
        places = [
            (rank, stream, route)
            for rank, ways in enumerate(self._routes)
            for stream in STREAMS
            for route in [getattr(ways, stream)]
        ]
        for rank, stream, route in places:
            if route.file:
                self._keep(self._files, (rank, stream), _opened(rank, route.file))
            elif route.way is Way.PUMP:
                self._keep(self._files, (rank, stream), open_spool())
        self.files.readable = self._readable()
        for rank, stream, route in places:
            if route.way is Way.PUMP and route.file and (rank, _STDS[stream]) not in self.files.readable:
                self._keep(self._spools, (rank, stream), open_spool())
        filtered = {stream: (rank, route.filtered) for rank, stream, route in places if route.filtered}
        for stream, (rank, path) in filtered.items():
            self._keep(self._filtered_files, stream, _opened(rank, path))
        return {stream: path for stream, (_, path) in filtered.items()}

    def _keep(self, opened: dict[_Key, int], key: _Key, descriptor: int) -> None:
        """Keep a descriptor for whoever needs it; for nobody if the opening was cancelled meanwhile."""
        with self._opening:
            if not self._drained:
                opened[key] = keep_private(descriptor)
                return
        os.close(descriptor)

    def _readable(self) -> dict[Place, LogFile]:
        """Find the streams that can be read back from their files: regular ones, not shared by several streams.

        A custom specification can name a FIFO, a device, or one file twice.
        """
        with self._opening:
            about = {place: os.fstat(descriptor) for place, descriptor in self._files.items()}
        uses = Counter((each.st_dev, each.st_ino) for each in about.values())
        found: dict[Place, LogFile] = {}
        for (rank, stream), each in about.items():
            route: Route = getattr(self._routes[rank], stream)
            identity = each.st_dev, each.st_ino
            if route.file and stat.S_ISREG(each.st_mode) and uses[identity] == 1:
                found[rank, _STDS[stream]] = LogFile(route.file, identity, each.st_size, route.way is Way.PUMP)
        return found

    def _hand_over(self, rank: int, stream: StreamName, handed: contextlib.ExitStack) -> int | None:
        route: Route = getattr(self._routes[rank], stream)
        if route.way is Way.INHERIT:
            return None
        if route.way is Way.PUMP:
            return self._pipe(rank, stream, route, handed)
        descriptor = self._files.pop((rank, stream)) if route.file else os.open(os.devnull, os.O_WRONLY)
        handed.callback(close_private, descriptor)
        return descriptor

    def _pipe(self, rank: int, stream: StreamName, route: Route, handed: contextlib.ExitStack) -> int:
        keep_freed_buffers()
        reading, writing = os.pipe()
        handed.callback(close_private, keep_private(writing))
        if self._pipe_bytes > _DEFAULT_PIPE_BYTES and hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # over the user's share of pipe memory: the default size does, too
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, self._pipe_bytes)
        intake = self._intake(rank, stream, route, reading)
        # First, since it does not keep the others waiting at the end.
        copies: list[StreamCopy | Bell] = [Bell(self.files, (rank, _STDS[stream]))]
        copies += [
            StreamCopy(target, LineCutter(terminal=terminal), intake, self._mailbox)
            for target, terminal in self._targets(rank, stream, route)
        ]
        pump = StreamPump(intake, copies)
        self._pumps.setdefault(rank, []).append(pump)
        if self._flowing:
            pump.begin()
        return writing

    def _intake(self, rank: int, stream: StreamName, route: Route, source: int) -> Intake:
        file = self._files.pop((rank, stream))
        if not route.file:
            return LoopIntake(source, file, Spool(file, self._threads, self._mailbox))
        on_failure = partial(self._note_failure, rank)
        spool = self._spools.pop((rank, stream), None)
        if spool is None:
            return FileIntake(source, file, route.file, self._threads, self._mailbox, self._turns, on_failure)
        log = RankFile(FileSink(file, f"log file {route.file!r}"), self._threads, self._mailbox, on_failure)
        rest = file if stat.S_ISREG(os.fstat(file).st_mode) else spool
        return LoopIntake(source, rest, SpooledFile(log, Spool(spool, self._threads, self._mailbox)))

    def _targets(self, rank: int, stream: StreamName, route: Route) -> Iterator[tuple[CopyTarget, bool]]:
        prefix = self._prefixes[rank].encode("utf-8", "surrogateescape")
        console = self._consoles.get(stream) if route.console else None
        if console is not None:
            colours = console.colours and console.terminal
            yield ConsoleTarget(console, coloured(prefix, rank) if colours else prefix), console.terminal
        if route.filtered:
            yield FilterTarget(self._filtered[stream], LineFilter(self._filters[stream], prefix)), False


def _opened(rank: int, path: str) -> int:
    try:
        return open_log(path)
    except OSError as error:
        raise RankStartError(rank, (), None, error, doing="open its log") from error


async def _see_to_end(pump: StreamPump, deadline: float) -> None:
    """Wait for a stream's own end, cut it at the deadline, then give it a moment for its file."""
    with anyio.CancelScope(deadline=deadline):
        await asyncio.wait([pump.done])
    moment = _LAST_MOMENT if pump.at_end.done() else _FLUSH_TIMEOUT
    pump.cut()
    with anyio.move_on_after(moment):
        await asyncio.wait([pump.done])
    pump.give_up()
    with anyio.move_on_after(_FLUSH_TIMEOUT):
        await asyncio.wait([pump.done])
    pump.done.cancel()
    with anyio.move_on_after(_FLUSH_TIMEOUT):
        await asyncio.wait([pump.done])
