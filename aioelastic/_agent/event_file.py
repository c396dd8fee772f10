"""``events.jsonl``: what happens in a run, a line of JSON each, beside its logs."""

import asyncio
import json
from collections.abc import Sequence
from typing import Final

import anyio

from aioelastic._base.private_descriptors import keep_private
from aioelastic._base.shielding import settle
from aioelastic._base.threads import BlockingThreads, Mailbox
from aioelastic._logs.buffers import RankFile
from aioelastic._logs.files import open_log
from aioelastic._logs.outlets import FileSink
from aioelastic._supervision.events import EventStream

_BACKLOG_LIMIT: Final = 1024 * 1024
"""Bytes that may wait for a slow disk; then events stay in their stream, which is bounded, too."""

_STUCK_AFTER: Final = 5.0
"""Seconds without progress after which the disk counts as stuck: nothing more is written, nor waited for."""

_LAST_EVENTS: Final = 5.0
"""Seconds for a run to end whose event loop ends."""


class EventFile:
    """Writes a stream of events into a file, once it is known which.

    What happened before waits in the stream.

    Args:
        events: The run's events, from the first one on.
    """

    def __init__(self, events: EventStream) -> None:
        self._events = events
        self._path = ""
        self._writing: asyncio.Task[None] | None = None
        self._has_begun = False

    def open(self, path: str) -> None:
        """Begin to write; where the file cannot be opened a warning says so, and the run goes on without."""
        self._path = path
        self._writing = asyncio.get_running_loop().create_task(self._write(), name="aioelastic: events")

    async def close(self) -> None:
        """Write what has happened, and close the file; to be called when the events have come to their end."""
        if self._writing is not None:
            try:
                await settle(self._writing)
            finally:
                # The end of the event loop cancels a task before its first step, too.
                if not self._has_begun:
                    await self._write()

    async def _write(self) -> None:
        self._has_begun = True
        threads = BlockingThreads("aioelastic: events", 1)
        file = RankFile(_LateFile(self._path), threads, Mailbox())
        try:
            await self._copy_to(file)
        except asyncio.CancelledError:
            # The event loop ends, and with it the run, which still has something to tell.
            with anyio.move_on_after(_LAST_EVENTS, shield=True):
                await self._copy_to(file)
            raise
        finally:
            with anyio.move_on_after(_STUCK_AFTER, shield=True):
                await file.close()
            await threads.close()

    async def _copy_to(self, file: RankFile) -> None:
        async for event in self._events:
            file.keep(json.dumps(event.to_json()).encode() + b"\n")
            if file.backlog > _BACKLOG_LIMIT and not await _has_written(file):
                break


class _LateFile:
    """A file that is opened where it is written, in a thread (`Sink`): that may block, and fail."""

    def __init__(self, path: str) -> None:
        self.name = f"event file {path!r}"
        self._path = path
        self._file: FileSink | None = None

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write all pieces, at the file's end."""
        if self._file is None:
            self._file = FileSink(keep_private(open_log(self._path)), self.name)
        self._file.write(pieces)

    def close(self) -> None:
        """Close the file, if it was opened."""
        if self._file is not None:
            self._file.close()


async def _has_written(file: RankFile) -> bool:
    """Wait until the disk has taken some; tell whether it did, within a bound."""
    progress = asyncio.Event()
    file.call_when_written(progress.set)
    with anyio.move_on_after(_STUCK_AFTER):
        await progress.wait()
    return progress.is_set()
