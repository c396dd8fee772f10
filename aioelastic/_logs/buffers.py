"""What keeps a stream's bytes that are read on the loop, so that a copy can fall behind without holding up anybody.

A group without files (``log_dir=os.devnull``) has a nameless temporary one, which is used only while somebody is behind
(`Spool`). Where the log file is one that cannot be read back, it stands beside that (`SpooledFile`).
"""

import asyncio
import contextlib
import os
from collections.abc import Callable, Sequence
from typing import Protocol

from aioelastic._base.defaults import CHUNK_BYTES
from aioelastic._base.threads import BlockingThreads, Mailbox
from aioelastic._logs.outlets import FailureListener, FileSink, Outlet, Sink


class StreamBuffer(Protocol):
    """Keeps a stream's bytes by their position in the stream."""

    @property
    def backlog(self) -> int:
        """Bytes kept in memory, not written yet."""
        ...

    def keep(self, chunk: bytes, *, needed: bool) -> None:
        """Keep the stream's next bytes; needed: somebody is behind and will read them."""
        ...

    async def read(self, position: int) -> tuple[int, bytes]:
        """Give bytes from a position of the stream on, as soon as they are written (`Intake.read`)."""
        ...

    def call_when_written(self, callback: Callable[[], None]) -> None:
        """Call back once when more of what is kept is written."""
        ...

    async def close(self) -> None:
        """Write what is kept and close the file."""
        ...


class _WrittenFile:
    """A file that is written by an outlet; the part that `RankFile` and `Spool` share (a `Giver`)."""

    def __init__(self, outlet: Outlet, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self._callbacks: list[Callable[[], None]] = []
        self._outlet = outlet
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


def open_spool() -> int:
    """Open a nameless temporary file; it goes when its descriptor is closed, by us or by the kernel."""
    import tempfile  # noqa: PLC0415 - 10 ms, and few groups need it

    with tempfile.TemporaryFile(buffering=0) as file:
        return os.dup(file.fileno())


class RankFile(_WrittenFile):
    """A log file that gets every byte, whoever else wants it."""

    def __init__(
        self, sink: Sink, threads: BlockingThreads, mailbox: Mailbox, on_failure: FailureListener | None = None
    ) -> None:
        super().__init__(Outlet(sink, threads.submit, on_failure), mailbox)

    def keep(self, chunk: bytes) -> None:
        """Put the bytes into the file."""
        self._put += len(chunk)
        self._outlet.put(self, chunk)


class Spool(_WrittenFile):
    """A nameless file (`StreamBuffer`) that holds what somebody who fell behind has not read yet."""

    def __init__(self, descriptor: int, threads: BlockingThreads, mailbox: Mailbox) -> None:
        self._sink = _SpoolSink(descriptor)
        super().__init__(Outlet(self._sink, threads.submit), mailbox)
        self._threads = threads
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

    async def read(self, position: int) -> tuple[int, bytes]:
        """Give bytes from a position of the stream on, once the file has them."""
        place = position - self._front
        put = self._put_before + place
        while put >= self._outlet.delivered and self._outlet.failure is None:
            progress = asyncio.Event()
            self.call_when_written(progress.set)
            await progress.wait()
        # Not simply to the file's end: what is there may be older.
        count = min(CHUNK_BYTES, self._outlet.delivered - put)
        data = b""
        if count > 0:
            with contextlib.suppress(OSError):
                data = await self._threads.run(os.pread, self._sink.descriptor, count, place)
        return (position, data) if data else (self._received, b"")


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
        self._file.keep(chunk)
        self._spool.keep(chunk, needed=needed)

    async def read(self, position: int) -> tuple[int, bytes]:
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
