"""Outlets: destinations that may block, fed from the event loop without waiting.

An outlet takes bytes on the loop and writes them in a thread, in order, as many at once as have come in meanwhile. Each
giver is told on its own loop how much of its bytes is written, so it can hold back; nothing here waits for anything.
An outlet whose destination fails is detached: it swallows what comes, counts it, and never fails its givers.
"""

import contextlib
import logging
import os
import select
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

from aioelastic._base.private_descriptors import close_private
from aioelastic._base.threads import BlockingThreads, Mailbox

logger = logging.getLogger("aioelastic")

FailureListener = Callable[[str], None]
"""Is told, in the thread that found it, which destination has failed and how."""

_WRITEV_LIMIT = 1024
"""Pieces of one writev call (IOV_MAX of Linux and macOS)."""


class Sink(Protocol):
    """A destination that may block; used from one thread at a time."""

    name: str
    """What a warning calls it."""

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write all the bytes, or raise whatever keeps it from that."""
        ...

    def close(self) -> None:
        """Give back what the sink holds."""
        ...


class Giver(Protocol):
    """Somebody who puts bytes into an outlet."""

    mailbox: Mailbox

    def written(self, count: int) -> None:
        """Learn, on the giver's loop, that so many of its bytes have left the outlet (written or swallowed)."""
        ...


class Outlet:
    """The queue before one sink.

    Args:
        sink: The destination.
        submit: Has a call run in a thread.
        on_failure: Told when the sink is detached.

    Attributes:
        failure: What the sink raised when it was detached, or ``None``.
        delivered: Bytes the sink has taken.
        missed: Bytes the sink did not get.
    """

    def __init__(
        self,
        sink: Sink,
        submit: Callable[[Callable[[], None]], None],
        on_failure: FailureListener | None = None,
    ) -> None:
        self.failure: BaseException | None = None
        self.delivered = 0
        self.missed = 0
        self._sink = sink
        self._submit = submit
        self._on_failure = on_failure
        self._lock = threading.Lock()
        self._pending: list[tuple[Giver, bytes]] = []
        self._in_flight = 0
        self._writing = False
        self._closing = False
        self._closed = False
        self._abandoned = False
        self._on_closed: Callable[[], None] | None = None

    def put(self, giver: Giver, data: bytes) -> None:
        """Take bytes to be written after all that was put before."""
        with self._lock:
            self._pending.append((giver, data))
            if self._writing:
                return
            self._writing = True
        self._submit(self._drain)

    def miss(self, count: int) -> None:
        """Count bytes that the sink should have got and will not get."""
        with self._lock:
            self.missed += count

    def forget(self, giver: Giver) -> int:
        """Drop what a giver has put and nobody has begun to write; count it, and give the count."""
        with self._lock:
            count = sum(len(data) for each, data in self._pending if each is giver)
            self._pending = [entry for entry in self._pending if entry[0] is not giver]
            self.missed += count
        return count

    def close(self, on_closed: Callable[[], None] | None = None) -> None:
        """Close the sink after what was put, call back in the thread, say in one warning what it missed.

        A second call does nothing: the descriptor's number may be somebody else's by then.
        """
        with self._lock:
            if self._closing:
                return
            self._closing = True
            self._on_closed = on_closed
            if self._writing:
                return
            self._writing = True
        self._submit(self._drain)

    def reopen(self) -> bool:
        """Take a `close` back as long as the sink is still stuck in a write; tell whether it can be used again."""
        with self._lock:
            if not self._closed:
                if self._abandoned:
                    self.missed = 0
                self._closing = self._abandoned = False
                self._on_closed = None
            return not self._closed

    async def abandon(self) -> None:
        """After `close`, stop waiting for a sink that is stuck: drop what it has not begun, and warn now.

        What it is stuck in counts as missed: nobody knows how much of it came through.
        """
        with self._lock:
            if self._closed or self._abandoned or not self._closing:
                return
            self.missed += self._in_flight + sum(len(data) for _, data in self._pending)
            self._pending = []
            self._in_flight = 0
            self._abandoned = True
        # Not on the loop: logging may well go to the very console that is stuck.
        thread = BlockingThreads("aioelastic: warning", 1)
        thread.submit(self._warn)
        await thread.close()

    def _drain(self) -> None:
        while batch := self._next_batch():
            self._write([data for _, data in batch])
            counts: dict[Giver, int] = {}
            for giver, data in batch:
                counts[giver] = counts.get(giver, 0) + len(data)
            for giver, count in counts.items():
                giver.mailbox.post(giver.written, count)

    def _write(self, pieces: list[bytes]) -> None:
        delivered = 0
        if self.failure is None:
            try:
                self._sink.write(pieces)
            except BaseException as error:  # noqa: BLE001 - a sink is anybody's code; it is detached, whatever it raised
                delivered = getattr(error, "characters_written", 0)
                # Counted before the failure is known: who reads the file back asks for them in the other order.
                self.delivered += delivered
                self.failure = error
                note_failure(self._sink.name, error, self._on_failure)
            else:
                delivered = sum(map(len, pieces))
                self.delivered += delivered
        with self._lock:
            # Nothing is in flight any more for those who abandoned it: they have counted all of it.
            self.missed += max(self._in_flight - delivered, 0)
            self._in_flight = 0

    def _next_batch(self) -> list[tuple[Giver, bytes]]:
        with self._lock:
            batch, self._pending = self._pending, []
            if batch:
                self._in_flight = sum(len(data) for _, data in batch)
                return batch
            self._writing = False
            self._closed = self._closing
        if self._closed:
            self._finish()
        return []

    def _finish(self) -> None:
        with contextlib.suppress(OSError):
            self._sink.close()
        if self._on_closed is not None:
            self._on_closed()
        # Last, since it may get stuck: see abandon().
        if not self._abandoned:
            self._warn()

    def _warn(self) -> None:
        if self.missed:
            warn_of_missed(self._sink.name, self.failure, self.missed)


class FileSink:
    """A file by its descriptor, which it owns."""

    def __init__(self, descriptor: int, name: str) -> None:
        self.descriptor = descriptor
        self.name = name

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write all pieces, in as few calls as the system takes."""
        write_all(self.descriptor, pieces)

    def close(self) -> None:
        """Close the descriptor."""
        close_private(self.descriptor)


def write_all(descriptor: int, pieces: Sequence[bytes]) -> None:
    """Write pieces to a descriptor, and wait where it takes no more at the moment.

    A console can be non-blocking: a program with asyncio streams on its own stdout has made it so.

    Raises:
        OSError: The system refused; its ``characters_written`` says how many bytes came through before.
    """
    left: list[bytes | memoryview] = list(pieces)
    done = 0
    while left:
        try:
            count = os.writev(descriptor, left[:_WRITEV_LIMIT])
        except BlockingIOError:
            poller = select.poll()
            poller.register(descriptor, select.POLLOUT)
            poller.poll()
            continue
        except OSError as error:
            raise _PartialWriteError(error, done) from error
        done += count
        while left and count >= len(left[0]):
            count -= len(left.pop(0))
        if count:
            left[0] = memoryview(left[0])[count:]


class _PartialWriteError(OSError):
    """An `OSError` that knows how much was written before it."""

    def __init__(self, error: OSError, characters_written: int) -> None:
        super().__init__(error.errno, error.strerror)
        self.characters_written = characters_written


def note_failure(name: str, failure: BaseException, on_failure: FailureListener | None) -> None:
    """Say that a sink is detached, to who reads the program's log and to who listens; once, when it fails."""
    logger.info("%s failed (%s); it is detached, the ranks go on", name, words_of(failure))
    if on_failure is not None:
        on_failure(words_of_failure(name, failure))


def words_of_failure(name: str, failure: BaseException) -> str:
    """Put into words that a sink has failed."""
    return f"{name} failed ({words_of(failure)})"


def warn_of_missed(name: str, failure: BaseException | None, missed: int) -> None:
    """Say once, at its end, how many bytes a sink did not get; it may block."""
    reason = "was too slow" if failure is None else f"failed ({words_of(failure)})"
    logger.warning("%s %s and missed %d bytes of output", name, reason, missed)


def words_of(error: BaseException) -> str:
    """Put an error into words."""
    return f"{type(error).__name__}: {error}" if not isinstance(error, OSError) else str(error)
