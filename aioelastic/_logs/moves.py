"""Moving a stream from its pipe into the rank's file, so that each byte is in the one or in the other.

What only a program's memory holds is lost when the program is killed, so the kernel does it: `os.splice` takes from the
pipe what it has written into the file, and nothing else. Everything here blocks and runs in a thread.
"""

import os
from collections.abc import Callable
from typing import NamedTuple

from aioelastic._base.defaults import PIECE_BYTES
from aioelastic._base.private_descriptors import close_private
from aioelastic._logs.files import keep_appending, stop_appending
from aioelastic._logs.outlets import FailureListener, logger, note_failure, warn_of_missed, write_all


class Piece(NamedTuple):
    """What one move took from the pipe; nothing at all: the stream is at its end.

    Attributes:
        data: The bytes.
        place: Where in the file the first of them is.
        kept: How many of them the file has.
        lost: Bytes after them that went into the file and were cut off by somebody before they could be read back.
        anew: Somebody has emptied the file since the last move: what it was given before is gone.
    """

    data: bytes
    place: int = 0
    kept: int = 0
    lost: int = 0
    anew: bool = False

    @property
    def is_end(self) -> bool:
        """Whether nothing comes any more."""
        return not (self.data or self.lost)

    def split(self, count: int) -> "tuple[Piece, Piece | None]":
        """Give the first so many of the bytes, and the rest if there is any."""
        if len(self.data) <= count:
            return self, None
        first = Piece(self.data[:count], self.place, min(self.kept, count), anew=self.anew)
        rest = Piece(self.data[count:], self.place + count, max(self.kept - count, 0), self.lost)
        return first, rest


class Mover:
    """Moves the bytes of one pipe into one regular file (owned) that nobody else writes into.

    A file that fails is left alone from then on: what comes is taken from the pipe, passed on and counted.

    Args:
        source: The pipe's reading end.
        file: The file.
        name: What a warning calls the file.
        on_failure: Told when the file fails.

    Attributes:
        name: What a warning calls the file.
        failure: What the file failed with, or ``None``.
        missed: Bytes that the file did not get.
        cuts: How often the file was found emptied, or shorter than it was.
    """

    def __init__(self, source: int, file: int, name: str, on_failure: FailureListener | None = None) -> None:
        self.name = name
        self.failure: OSError | None = None
        self.missed = 0
        self.cuts = 0
        self._on_failure = on_failure
        self._source = source
        self._file = file
        self._end = 0
        self._anew = False
        self._way: Callable[[int], Piece] = self._copy
        if hasattr(os, "splice"):
            # The kernel does not splice into a file that appends; each move looks for the file's end itself.
            stop_appending(file)
            self._way = self._splice

    def move(self) -> Piece:
        """Move what is there, `PIECE_BYTES` at most.

        Raises:
            BlockingIOError: The pipe is empty.
        """
        return self._way(PIECE_BYTES)

    def _splice(self, limit: int) -> Piece:
        try:
            place = self._look_for_end()
            count = os.splice(self._source, self._file, limit, offset_dst=place, flags=os.SPLICE_F_NONBLOCK)
        except BlockingIOError:
            raise
        except OSError:
            # This file system does not take it, or the file fails: writing will show. Nothing has left the pipe.
            keep_appending(self._file)
            self._way = self._copy
            return self._copy(limit)
        self._end = place + count
        try:
            data = os.pread(self._file, count, place)
        except OSError:
            data = b""
        return self._piece(data, place, len(data), count - len(data))

    def _copy(self, limit: int) -> Piece:
        data = os.read(self._source, limit)
        place, kept = self._end, len(data)
        try:
            place = self._look_for_end()
            write_all(self._file, [data])
        except OSError as error:
            kept = getattr(error, "characters_written", 0)
            self.missed += len(data) - kept
            self.failure = error
            note_failure(self.name, error, self._on_failure)
            self._way = self._drop
        self._end = place + kept
        return self._piece(data, place, kept)

    def _drop(self, limit: int) -> Piece:
        data = os.read(self._source, limit)
        self.missed += len(data)
        return Piece(data)

    def _look_for_end(self) -> int:
        """Give where the file ends, and notice that somebody has emptied it (logrotate's copytruncate)."""
        end = os.fstat(self._file).st_size
        if end < self._end:
            # Before anything is written there: who reads back at the same time must not take it for something else.
            self.cuts += 1
            self._anew = True
        self._end = end
        return end

    def _piece(self, data: bytes, place: int, kept: int, lost: int = 0) -> Piece:
        anew, self._anew = self._anew, False
        return Piece(data, place, kept, lost, anew)

    def close(self) -> None:
        """Close the file."""
        try:
            close_private(self._file)
        except OSError as error:
            # Some file systems report a full disk, or a lost server, only now: how much is missing, nobody knows.
            if self.failure is None:
                self.failure = error
                note_failure(self.name, error, self._on_failure)

    def warn(self) -> None:
        """Say how many bytes the file missed, if any."""
        if self.missed:
            warn_of_missed(self.name, self.failure, self.missed)

    def warn_of_being_stuck(self) -> None:
        """Say that nothing more of the stream is waited for."""
        logger.warning("%s was too slow and missed what was left of the rank's output", self.name)
