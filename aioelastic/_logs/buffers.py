"""What a stream's bytes are kept in, so that a console or a filtered copy can fall behind without holding up anybody.

Normally that is the rank's own log file (`RankFile`). A group without files (``log_dir=os.devnull``) has a nameless
temporary one instead, which is used only while somebody is behind (`Spool`).
"""

import asyncio
import os
import tempfile
from collections.abc import Callable, Sequence
from typing import Protocol

from aioelastic._base.defaults import CHUNK_BYTES
from aioelastic._base.threads import BlockingThreads, Mailbox
from aioelastic._logs.outlets import FileSink, Outlet


class StreamBuffer(Protocol):
    """Keeps a stream's bytes by their position in the stream."""

    @property
    def backlog(self) -> int:
        """Bytes kept in memory, not written yet."""
        ...

    def keep(self, chunk: bytes, *, needed: bool) -> None:
        """Keep the stream's next bytes; needed: somebody is behind and will read them."""
        ...

    async def read(self, position: int) -> bytes:
        """Give bytes from a position of the stream on, as soon as they are written; ``b""``: they are lost."""
        ...

    def call_when_written(self, callback: Callable[[], None]) -> None:
        """Call back once when more of what is kept is written."""
        ...

    async def close(self) -> None:
        """Write what is kept and close the file."""
        ...


class _WrittenFile:
    """A file that is written by an outlet and read by position; the part both buffers share (a `Giver`)."""

    def __init__(self, outlet: Outlet, descriptor: int, threads: BlockingThreads, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self._callbacks: list[Callable[[], None]] = []
        self._outlet = outlet
        self._descriptor = descriptor
        self._threads = threads
        self._put = 0
        self._written = 0

    @property
    def backlog(self) -> int:
        """Bytes kept in memory, not written yet."""
        return self._put - self._written

    def written(self, count: int) -> None:
        """Note that so many bytes more are in the file, and tell whoever asked."""
        self._written += count
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            callback()

    def call_when_written(self, callback: Callable[[], None]) -> None:
        """Call back once when more of what is kept is written."""
        self._callbacks.append(callback)

    async def close(self) -> None:
        """Write what is kept and close the file; a file that is stuck is left to its thread on cancellation."""
        closed = asyncio.Event()
        self._outlet.close(lambda: self.mailbox.post(lambda _: closed.set(), None))
        try:
            await closed.wait()
        except asyncio.CancelledError:
            await self._outlet.abandon()
            raise

    async def _read(self, put_position: int, file_position: int) -> bytes:
        """Read what was put at a position, from where it is in the file, once the file has it."""
        while put_position >= self._outlet.delivered and self._outlet.failure is None:
            progress = asyncio.Event()
            self.call_when_written(progress.set)
            await progress.wait()
        # Not simply to the file's end: a sink that failed may read as anything (/dev/full as zeros).
        count = min(CHUNK_BYTES, self._outlet.delivered - put_position)
        try:
            return await self._threads.run(os.pread, self._descriptor, count, file_position) if count > 0 else b""
        except OSError:
            return b""


def open_spool() -> int:
    """Open a nameless temporary file; it goes when its descriptor is closed, by us or by the kernel."""
    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


class RankFile(_WrittenFile):
    """The rank's own log file (`StreamBuffer`); it gets every byte, whoever else wants it."""

    def __init__(self, descriptor: int, path: str, threads: BlockingThreads, mailbox: Mailbox) -> None:
        outlet = Outlet(FileSink(descriptor, f"log file {path!r}"), threads.submit)
        super().__init__(outlet, descriptor, threads, mailbox)
        self._start = os.fstat(descriptor).st_size

    def keep(self, chunk: bytes, *, needed: bool) -> None:
        """Put the bytes into the file."""
        del needed
        self._put += len(chunk)
        self._outlet.put(self, chunk)

    async def read(self, position: int) -> bytes:
        """Give bytes from a position of the stream on; ``b""`` when the file failed or was cut short by somebody."""
        return await self._read(position, self._start + position)


class Spool(_WrittenFile):
    """A nameless file (`StreamBuffer`) that holds what somebody who fell behind has not read yet."""

    def __init__(self, descriptor: int, threads: BlockingThreads, mailbox: Mailbox) -> None:
        self._sink = _SpoolSink(descriptor)
        super().__init__(Outlet(self._sink, threads.submit), descriptor, threads, mailbox)
        self._received = 0
        self._front = 0
        self._put_before = 0

    def keep(self, chunk: bytes, *, needed: bool) -> None:
        """Put the bytes into the file if somebody is behind; otherwise begin anew at its front."""
        self._received += len(chunk)
        if needed:
            self._put += len(chunk)
            self._outlet.put(self, chunk)
        else:
            # Nobody is behind, so all that was put is written and read: the space can be used again. What was put
            # goes on being counted: the news of the last write may still be on its way here.
            self._front = self._received
            self._put_before = self._put
            self._sink.position = 0

    async def read(self, position: int) -> bytes:
        """Give bytes from a position of the stream on."""
        place = position - self._front
        return await self._read(self._put_before + place, place)


class SpooledFile:
    """A log file that cannot be read back (`StreamBuffer`), and a spool beside it for those who fall behind.

    It is no regular file, or other streams write into it as well.
    """

    def __init__(self, file: RankFile, spool: Spool) -> None:
        self._file = file
        self._spool = spool

    @property
    def backlog(self) -> int:
        """Bytes kept in memory, not written yet."""
        return max(self._file.backlog, self._spool.backlog)

    def keep(self, chunk: bytes, *, needed: bool) -> None:
        """Put the bytes into the file, and into the spool if somebody is behind."""
        self._file.keep(chunk, needed=needed)
        self._spool.keep(chunk, needed=needed)

    async def read(self, position: int) -> bytes:
        """Give bytes from a position of the stream on."""
        return await self._spool.read(position)

    def call_when_written(self, callback: Callable[[], None]) -> None:
        """Call back once when more of what the slower one keeps is written."""
        slower = max(self._file, self._spool, key=lambda each: each.backlog)
        slower.call_when_written(callback)

    async def close(self) -> None:
        """Write what is kept and close both."""
        await asyncio.gather(self._file.close(), self._spool.close())


class _SpoolSink(FileSink):
    """Writes at a position of its own, so that the front can be used again."""

    def __init__(self, descriptor: int) -> None:
        super().__init__(descriptor, "the console's backlog")
        self.position = 0

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write all pieces, one after the other."""
        left = b"".join(pieces)
        while left:
            count = os.pwrite(self.descriptor, left, self.position)
            self.position += count
            left = left[count:]
