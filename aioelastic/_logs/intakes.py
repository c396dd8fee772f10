"""How a stream's bytes come in: out of the rank's pipe, into what keeps them, and on to the copies.

There are two ways. Where the rank has a log file of its own, `FileIntake` moves them into it within the kernel. All
else (no file at all, a FIFO, a device, a file that several streams write into) is read and written: `LoopIntake`.
"""

import asyncio
import os
import select
from typing import Protocol

from aioelastic._base.defaults import CHUNK_BYTES, PIPE_BYTES
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._logs.buffers import StreamBuffer

_BACKLOG_LIMIT = 4 * CHUNK_BYTES
"""Bytes waiting for the rank's file at which the pipe is left alone: the pipe, then the rank, wait for the disk."""


class Receiver(Protocol):
    """Who gets a stream's bytes as they come in; called on the loop."""

    @property
    def keeps_up(self) -> bool:
        """Whether the next bytes will be taken as they come, by all copies."""
        ...

    def offer(self, chunk: bytes) -> None:
        """Take the stream's next bytes, or come back for them later."""
        ...

    def miss(self, count: int) -> None:
        """Count bytes of the stream that nobody can get any more."""
        ...

    def end(self) -> None:
        """Learn that nothing more comes in."""
        ...


class Intake(Protocol):
    """One stream's way in.

    Attributes:
        source: The reading end of the rank's pipe.
        file: Where the bytes belong that are in the pipe when the supervisor dies.
    """

    source: int
    file: int

    def connect(self, receiver: Receiver) -> None:
        """Learn who gets the bytes; called once, before all else."""
        ...

    def begin(self) -> None:
        """Start to take bytes from the pipe."""
        ...

    def is_silent(self) -> bool:
        """Tell whether nothing of the stream is on its way: the rank is waited for, and its pipe is empty."""
        ...

    def cut(self) -> None:
        """Take what is in the pipe now, then end although somebody still holds it."""
        ...

    def stop(self) -> None:
        """Take nothing more, and end at once."""
        ...

    async def read(self, position: int) -> tuple[int, bytes]:
        """Give bytes from a position of the stream on, as soon as they are kept.

        Returns:
            The position at which there is something to have (what lies before it is lost), and the bytes there.
        """
        ...

    async def close(self) -> None:
        """Close what keeps the bytes, once it has them; on cancellation leave what is stuck to its thread."""
        ...


def is_readable(pipe: int) -> bool:
    """Tell whether there is something to be read from a pipe."""
    poller = select.poll()
    poller.register(pipe, select.POLLIN)
    return bool(poller.poll(0))


class LoopIntake:
    """Reads the pipe on the loop; a thread writes what was read (`Intake`)."""

    def __init__(self, source: int, file: int, buffer: StreamBuffer) -> None:
        self.source = keep_private(source)
        self.file = file
        self._loop = asyncio.get_running_loop()
        self._buffer = buffer
        self._ended = False
        self.read = buffer.read
        self.close = buffer.close
        os.set_blocking(source, False)

    def connect(self, receiver: Receiver) -> None:
        """Learn who gets the bytes."""
        self._receiver = receiver

    def begin(self) -> None:
        """Start to read."""
        if not self._ended:
            self._loop.add_reader(self.source, self._on_readable)

    def is_silent(self) -> bool:
        """Tell whether nothing is in the pipe."""
        return self._ended or not is_readable(self.source)

    def cut(self) -> None:
        """Take what is in the pipe now, then end."""
        taken = 0
        while not self._ended and taken < PIPE_BYTES:
            count = self._take()
            if count is None:
                break
            taken += count
        self.stop()

    def stop(self) -> None:
        """Close the pipe."""
        if self._ended:
            return
        self._ended = True
        self._loop.remove_reader(self.source)
        close_private(self.source)
        self._receiver.end()

    def _on_readable(self) -> None:
        self._take()
        if self._buffer.backlog >= _BACKLOG_LIMIT and not self._ended:
            # Level-triggered: a pipe left in the loop would call back at once, for nothing.
            self._loop.remove_reader(self.source)
            self._buffer.call_when_written(self._resume)

    def _resume(self) -> None:
        if self._ended:
            return
        if self._buffer.backlog >= _BACKLOG_LIMIT:
            self._buffer.call_when_written(self._resume)
        else:
            self._loop.add_reader(self.source, self._on_readable)

    def _take(self) -> int | None:
        """Take one chunk; give its size, or ``None`` when there is nothing to take at the moment."""
        try:
            chunk = os.read(self.source, CHUNK_BYTES)
        except BlockingIOError:
            return None
        if not chunk:
            self.stop()
            return None
        self._buffer.keep(chunk, needed=not self._receiver.keeps_up)
        self._receiver.offer(chunk)
        return len(chunk)
