"""The way in of a stream that has a regular file of its own: a thread moves its bytes, the loop hands them on."""

import asyncio
import contextlib
import os
import threading
import time
from collections import deque

from aioelastic._base.defaults import CHUNK_BYTES, PIECE_BYTES, PIPE_BYTES
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._base.threads import BlockingThreads, Mailbox
from aioelastic._logs.intakes import Receiver, is_readable
from aioelastic._logs.moves import Mover, Piece
from aioelastic._logs.outlets import FailureListener
from aioelastic._logs.places import Places
from aioelastic._logs.turns import Portion, Turns


class FileIntake:
    """Has a thread move the pipe's bytes into the rank's file, and hands them on to the copies (`Intake`).

    The loop does not touch the pipe meanwhile: a look at it would wait for a move that waits for the disk.
    """

    def __init__(
        self,
        source: int,
        file: int,
        path: str,
        threads: BlockingThreads,
        mailbox: Mailbox,
        turns: Turns,
        on_failure: FailureListener | None = None,
    ) -> None:
        os.set_blocking(source, False)
        self.source = keep_private(source)
        self.file = file
        self._loop = asyncio.get_running_loop()
        self._mover = Mover(source, file, f"log file {path!r}", on_failure)
        self._threads = threads
        self._mailbox = mailbox
        self._turns = turns
        self._portion = Portion()
        self._places = Places()
        self._queue: deque[Piece] = deque()
        self._delivering = False
        self._watching = False
        self._moving = False
        self._emptied = True
        self._at_end = False
        self._ended = False
        self._left_to_cut: int | None = None
        self._was_moving_when_cut = False
        # Shared with the thread: whether a move is under way, and so who closes the descriptors.
        self._lock = threading.Lock()
        self._busy = False
        self._closing = False
        self._abandoned = False
        self._source_open = True
        self._closed = asyncio.Event()

    def connect(self, receiver: Receiver) -> None:
        """Learn who gets the bytes."""
        self._receiver = receiver

    def begin(self) -> None:
        """Start to watch the pipe."""
        self._go_on()

    def is_silent(self) -> bool:
        """Tell whether nothing is in the pipe, and nothing that was moved is still to be handed on."""
        return self._ended or (self._watching and not self._queue and not is_readable(self.source))

    def cut(self) -> None:
        """Move what is in the pipe now, then end; a thread does it, so the end comes later."""
        if self._left_to_cut is None and not self._ended:
            self._watch(on=False)
            self._left_to_cut = PIPE_BYTES
            # It may have found the pipe empty before the last bytes came.
            self._was_moving_when_cut = self._moving
            self._emptied = False
            self._go_on()

    def stop(self) -> None:
        """Move nothing more."""
        if self._ended:
            return
        self._ended = True
        self._watch(on=False)
        while self._queue:
            self._pass_on(self._queue.popleft())
        if not self._moving:
            self._close_source()
        self._receiver.end()

    async def read(self, position: int) -> tuple[int, bytes]:
        """Read bytes back from where they are in the file."""
        start, place, count = self._places.find(position)
        while count and (cuts := self._mover.cuts) == self._places.cuts:
            try:
                data = await self._threads.run(os.pread, self.file, min(count, CHUNK_BYTES), place)
            except OSError:
                data = b""
            if cuts == self._mover.cuts:
                if not data:
                    break
                return start, data
            # The file was emptied meanwhile, and may hold anything at that place.
            start, place, count = self._places.find(position)
        return self._places.end, b""

    async def close(self) -> None:
        """Close pipe and file; a move that is stuck is left to its thread, which closes them after it."""
        with self._lock:
            self._closing = True
            idle = not self._busy
        if idle:
            self._threads.submit(self._finish)
        try:
            await self._closed.wait()
        except asyncio.CancelledError:
            await self._abandon()
            raise

    async def _abandon(self) -> None:
        with self._lock:
            if not self._busy:
                return
            self._abandoned = True
        # Not on the loop: logging may block, too.
        thread = BlockingThreads("aioelastic: warning", 1)
        thread.submit(self._mover.warn_of_being_stuck)
        await thread.close()

    def _go_on(self) -> None:
        """Do what is to be done next: move or wait for the rank, and hand on or end."""
        self._move_on()
        if self._queue:
            if not self._delivering:
                self._delivering = True
                self._turns.ask(self._deliver)
        elif self._at_end:
            self.stop()

    def _move_on(self) -> None:
        if self._ended or self._moving:
            return
        if self._left_to_cut is not None and (self._emptied or self._left_to_cut <= 0):
            self._at_end = True
        # One piece ahead of the loop: the thread moves the next while the copies are at work on this.
        may_move = not self._at_end and len(self._queue) <= 1
        self._watch(on=may_move and self._emptied)
        if may_move and not self._emptied:
            self._start_move()

    def _watch(self, *, on: bool) -> None:
        if on == self._watching:
            return
        self._watching = on
        if on:
            self._loop.add_reader(self.source, self._start_move)
        else:
            self._loop.remove_reader(self.source)

    def _start_move(self) -> None:
        # Level-triggered: a pipe left in the loop would call back until the thread has emptied it.
        self._watch(on=False)
        self._moving = True
        with self._lock:
            self._busy = True
        self._threads.submit(self._move)

    def _move(self) -> None:
        """Move what is there (in the thread)."""
        piece = None
        with contextlib.suppress(BlockingIOError):
            piece = self._mover.move()
        with self._lock:
            # Before the loop hears of it, which may start the next one at once.
            self._busy = False
            closing = self._closing
        self._mailbox.post(self._on_moved, piece)
        if closing:
            self._finish()

    def _on_moved(self, piece: Piece | None) -> None:
        self._moving = False
        if self._ended:
            # Who was given up gets nothing more: its copies have counted all that they will not get.
            self._close_source()
            return
        if piece is None:
            self._emptied = not self._was_moving_when_cut
        elif piece.is_end:
            self._at_end = True
        else:
            self._queue.append(piece)
            # Less than there was room for is all there was. After a cut only a look that finds nothing will do.
            self._emptied = len(piece.data) < PIECE_BYTES and self._left_to_cut is None
            if self._left_to_cut is not None and not self._was_moving_when_cut:
                self._left_to_cut -= len(piece.data)
        self._was_moving_when_cut = False
        self._go_on()

    def _deliver(self) -> None:
        """Hand on a portion: what the copies do with it takes its time."""
        self._delivering = False
        # First, so that the thread moves on while the copies are at work.
        self._move_on()
        if self._queue:
            piece, rest = self._queue.popleft().split(self._portion.size)
            if rest is not None:
                self._queue.appendleft(rest)
            begin = time.thread_time()
            self._pass_on(piece)
            self._portion.note(len(piece.data), time.thread_time() - begin)
        self._go_on()

    def _pass_on(self, piece: Piece) -> None:
        self._places.add(piece)
        if piece.data:
            self._receiver.offer(piece.data)
        if piece.lost:
            self._receiver.miss(piece.lost)

    def _close_source(self) -> None:
        with self._lock:
            was_open, self._source_open = self._source_open, False
        if was_open:
            close_private(self.source)

    def _finish(self) -> None:
        """Close everything (in the thread)."""
        self._close_source()
        self._mover.close()
        self._mailbox.post(lambda _: self._closed.set(), None)
        # Last, since it may get stuck.
        if not self._abandoned:
            self._mover.warn()
