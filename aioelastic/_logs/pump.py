"""The pump of one stream: from the rank's pipe into its buffer and past its copies, on the event loop.

::

    rank ──pipe──▶ StreamPump ──▶ StreamBuffer (the rank's file: every byte)
                       │                │ read again by who fell behind
                       ├──▶ StreamCopy ─┴─▶ LineCutter ─▶ prefix ─▶ console
                       └──▶ StreamCopy ───▶ LineCutter ─▶ filter ─▶ filtered file
"""

import asyncio
import os
from collections.abc import Sequence

from aioelastic._base.defaults import CHUNK_BYTES, PIPE_BYTES
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._logs.buffers import StreamBuffer
from aioelastic._logs.copies import StreamCopy

_BACKLOG_LIMIT = 4 * CHUNK_BYTES
"""Bytes waiting for the rank's file at which the pipe is left alone: the pipe, then the rank, wait for the disk."""


class StreamPump:
    """Pumps one stream from `begin` until its end, or until it is cut.

    Attributes:
        done: The task that ends the stream: the copies have it all, the file is closed.
    """

    def __init__(self, source: int, buffer: StreamBuffer, copies: Sequence[StreamCopy]) -> None:
        self._loop = asyncio.get_running_loop()
        self._source = keep_private(source)
        self._buffer = buffer
        self._copies = copies
        self._ended = self._loop.create_future()
        self.done = self._loop.create_task(self._finish())
        os.set_blocking(source, False)

    def begin(self) -> None:
        """Start to read."""
        if not self._ended.done():
            self._loop.add_reader(self._source, self._on_readable)

    @property
    def at_end(self) -> "asyncio.Future[None]":
        """Done as soon as nothing more is read from the pipe."""
        return self._ended

    def cut(self) -> None:
        """Take what is in the pipe now, then end the stream although somebody still holds it."""
        taken = 0
        while not self._ended.done() and taken < PIPE_BYTES:
            count = self._read()
            if count is None:
                break
            taken += count
        self._end()

    def give_up(self) -> None:
        """End at once, without waiting for copies; count what they will not get."""
        self._end()
        if not self.done.done():
            self.done.cancel()

    def _on_readable(self) -> None:
        self._read()
        if self._buffer.backlog >= _BACKLOG_LIMIT and not self._ended.done():
            # Level-triggered: a pipe left in the loop would call back at once, for nothing.
            self._loop.remove_reader(self._source)
            self._buffer.call_when_written(self._resume)

    def _resume(self) -> None:
        if self._ended.done():
            return
        if self._buffer.backlog >= _BACKLOG_LIMIT:
            self._buffer.call_when_written(self._resume)
        else:
            self._loop.add_reader(self._source, self._on_readable)

    def _read(self) -> int | None:
        """Take one chunk; give its size, or ``None`` when there is nothing to take at the moment."""
        try:
            chunk = os.read(self._source, CHUNK_BYTES)
        except BlockingIOError:
            return None
        if not chunk:
            self._end()
            return None
        self._buffer.keep(chunk, needed=not all(copy.keeps_up for copy in self._copies))
        for copy in self._copies:
            copy.offer(chunk)
        return len(chunk)

    def _end(self) -> None:
        if self._ended.done():
            return
        self._loop.remove_reader(self._source)
        close_private(self._source)
        self._ended.set_result(None)

    async def _finish(self) -> None:
        try:
            await asyncio.wait([self._ended])
            for copy in self._copies:
                await copy.finish()
        except asyncio.CancelledError:
            # We were given up, or the event loop ends and cancels all tasks, readers of the buffer included.
            self._end()
            for copy in self._copies:
                copy.give_up()
            raise
        finally:
            await self._buffer.close()
