"""All the output of one group: opens what its streams need, hands it to the ranks, sees the streams to their end."""

import asyncio
import contextlib
import fcntl
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

import anyio

from aioelastic._base.defaults import PIPE_BYTES
from aioelastic._base.threads import BlockingThreads, Mailbox, in_thread
from aioelastic._errors.exceptions import RankStartError
from aioelastic._logs.buffers import RankFile, Spool, open_spool
from aioelastic._logs.consoles import Console, acquire_console
from aioelastic._logs.copies import ConsoleTarget, CopyTarget, FilterTarget, StreamCopy
from aioelastic._logs.files import open_log
from aioelastic._logs.lines import FilterEntry, LineCutter, LineFilter
from aioelastic._logs.outlets import FileSink, Outlet
from aioelastic._logs.pump import StreamPump
from aioelastic._logs.routes import RankRoutes, Route, Way

_THREADS = 32
"""Files that may block at the same time before the others wait for one another."""

_PIPE_BUDGET = 16 * PIPE_BYTES
"""Bytes of pipe buffers for one group: the kernel shrinks all new pipes of a user who has 64 MiB of them."""

_DEFAULT_PIPE_BYTES = 64 * 1024
"""What a pipe holds unless asked for more (pipe(7))."""

_FLUSH_TIMEOUT = 1.0
"""Seconds for files to be flushed and closed after their streams were cut."""

StreamName = Literal["stdout", "stderr"]
STREAMS: tuple[StreamName, StreamName] = ("stdout", "stderr")


class GroupLogs:
    """The output of one group, from `open` to `drain`.

    Args:
        routes: The ways of each rank's streams.
        prefixes: Rank -> what stands before its lines.
        filters: What the filtered copies look for.
    """

    def __init__(
        self,
        routes: Sequence[RankRoutes],
        prefixes: Mapping[int, str],
        filters: Mapping[StreamName, Sequence[FilterEntry]],
    ) -> None:
        self._routes = routes
        self._prefixes = prefixes
        self._filters = filters
        self._threads = BlockingThreads("aioelastic: log files", _THREADS)
        self._mailbox = Mailbox()
        self._files: dict[tuple[int, StreamName], int] = {}
        self._filtered: dict[StreamName, Outlet] = {}
        self._consoles: dict[StreamName, Console] = {}
        self._pumps: dict[int, list[StreamPump]] = {}
        pumped = sum(route.way is Way.PUMP for ways in routes for route in ways)
        self._pipe_bytes = min(PIPE_BYTES, _PIPE_BUDGET // max(1, pumped))

    async def open(self) -> None:
        """Open every file and console that the group needs; `drain` closes them, also after a failure here.

        Raises:
            RankStartError: A file cannot be opened.
        """
        filtered = await in_thread(self._open_files)
        for stream, (path, descriptor) in filtered.items():
            self._filtered[stream] = Outlet(FileSink(descriptor, f"filtered copy {path!r}"), self._threads.submit)
        for stream in STREAMS:
            if any(getattr(ways, stream).console for ways in self._routes):
                console = acquire_console(stream)
                if console is not None:
                    self._consoles[stream] = console

    @contextlib.contextmanager
    def handing_over(self, rank: int) -> Iterator[dict[StreamName, int | None]]:
        """Give what a rank gets as stdout and stderr while it starts; afterwards the supervisor's ends are closed.

        The pumps of a rank that does not start see the end of its pipes at once, and end.
        """
        with contextlib.ExitStack() as handed:
            yield {stream: self._hand_over(rank, stream, handed) for stream in STREAMS}

    async def drain(self, deadlines: Mapping[int, float]) -> None:
        """See all streams to their end, within bounds, and close everything.

        Args:
            deadlines: Rank -> loop time at which its streams are cut although somebody still holds them.
        """
        now = anyio.current_time()
        async with anyio.create_task_group() as streams:
            for rank, pumps in self._pumps.items():
                for pump in pumps:
                    streams.start_soon(_see_to_end, pump, deadlines.get(rank, now))
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files.clear()
        for outlet in self._filtered.values():
            outlet.close()
        await self._threads.close()
        for console in self._consoles.values():
            await console.release()
        self._consoles.clear()

    def _open_files(self) -> dict[StreamName, tuple[str, int]]:
        """Open all files at once (blocking); give the filtered copies, keep the ranks' files."""
        for rank, ways in enumerate(self._routes):
            for stream in STREAMS:
                route: Route = getattr(ways, stream)
                if route.file:
                    self._files[rank, stream] = self._opened(rank, route.file)
                elif route.way is Way.PUMP:
                    self._files[rank, stream] = open_spool()
        paths = {
            stream: (rank, path)
            for rank, ways in enumerate(self._routes)
            for stream in STREAMS
            if (path := getattr(ways, stream).filtered)
        }
        return {stream: (path, self._opened(rank, path)) for stream, (rank, path) in paths.items()}

    def _opened(self, rank: int, path: str) -> int:
        try:
            return open_log(path)
        except OSError as error:
            raise RankStartError(rank, (), None, error, doing="open its log") from error

    def _hand_over(self, rank: int, stream: StreamName, handed: contextlib.ExitStack) -> int | None:
        route: Route = getattr(self._routes[rank], stream)
        if route.way is Way.INHERIT:
            return None
        if route.way is Way.PUMP:
            return self._pipe(rank, stream, route, handed)
        descriptor = self._files.pop((rank, stream)) if route.file else os.open(os.devnull, os.O_WRONLY)
        handed.callback(os.close, descriptor)
        return descriptor

    def _pipe(self, rank: int, stream: StreamName, route: Route, handed: contextlib.ExitStack) -> int:
        reading, writing = os.pipe()
        handed.callback(os.close, writing)
        if self._pipe_bytes > _DEFAULT_PIPE_BYTES and hasattr(fcntl, "F_SETPIPE_SZ"):
            with contextlib.suppress(OSError):  # over the user's share of pipe memory: the default size does, too
                fcntl.fcntl(writing, fcntl.F_SETPIPE_SZ, self._pipe_bytes)
        descriptor = self._files.pop((rank, stream))
        buffer: RankFile | Spool = (
            RankFile(descriptor, route.file, self._threads, self._mailbox)
            if route.file
            else Spool(descriptor, self._threads, self._mailbox)
        )
        copies = [
            StreamCopy(target, LineCutter(terminal=terminal), buffer, self._mailbox)
            for target, terminal in self._targets(rank, stream, route)
        ]
        self._pumps.setdefault(rank, []).append(StreamPump(reading, buffer, copies))
        return writing

    def _targets(self, rank: int, stream: StreamName, route: Route) -> Iterator[tuple[CopyTarget, bool]]:
        prefix = self._prefixes[rank].encode("utf-8", "surrogateescape")
        console = self._consoles.get(stream) if route.console else None
        if console is not None:
            yield ConsoleTarget(console, prefix), console.terminal
        if route.filtered:
            yield FilterTarget(self._filtered[stream], LineFilter(self._filters[stream], prefix)), False


async def _see_to_end(pump: StreamPump, deadline: float) -> None:
    """Wait for a stream's own end, cut it at the deadline, then give it a moment for its file."""
    with anyio.CancelScope(deadline=deadline):
        await asyncio.wait([pump.done])
    pump.cut()
    with anyio.move_on_after(_FLUSH_TIMEOUT):
        await asyncio.wait([pump.done])
    pump.give_up()
    with anyio.move_on_after(_FLUSH_TIMEOUT):
        await asyncio.wait([pump.done])
    pump.done.cancel()
