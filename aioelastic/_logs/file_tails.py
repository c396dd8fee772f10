"""Reading a rank's log file while it is written, from a position on."""

import errno
import os
import time
from typing import Final, NamedTuple

from aioelastic._base.defaults import CHUNK_BYTES, LINE_LIMIT
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._logs.file_watch import FileWatch
from aioelastic._logs.lines import Cut, LineCutter
from aioelastic._logs.log_files import LogFile, Place

_GONE: Final = frozenset({errno.ENOENT, errno.ENOTDIR, errno.ELOOP, errno.ESTALE})


class Look(NamedTuple):
    """What one look into a file found.

    Attributes:
        data: The next bytes.
        time: When that was.
        was_cut: The file is shorter than it was: the bytes are its first ones, and do not follow those of before.
        is_gone: The file is not there any more, or another one is in its place.
        watch: The number of the watch that tells of the next change.
        failure: What the system has raised.
    """

    data: bytes = b""
    time: float = 0.0
    was_cut: bool = False
    is_gone: bool = False
    watch: int | None = None
    failure: OSError | None = None


class FileTail:
    """Where one reader is in one file; the file is open only during a look, however many ranks there are.

    Args:
        place: Whose file it is.
        file: The file.
        position: Where to begin.
        last: Begin so many lines before that, where a line begins; ``None``: right there.
        was_over: What is there is all there will be, so an open line counts as one of the last.

    Attributes:
        has_ended: Nothing more will be written.
        is_queued: It is in the reader's queue of files to be looked at.
    """

    def __init__(self, place: Place, file: LogFile, position: int, *, last: int | None, was_over: bool = False) -> None:
        self.place = place
        self.file = file
        self.has_ended = False
        self.is_queued = False
        self._position = position
        self._last = last
        self._was_over = was_over
        self._cutter = LineCutter(terminal=False)

    def look(self, watch: FileWatch | None) -> Look:
        """Read a chunk (blocking).

        Args:
            watch: Whom to ask for the next change, before anything is read so that none is missed.
        """
        number = None
        try:
            if watch is not None:
                number = watch.add(self.file.path)
            found = self._read()
        except OSError as error:
            # Without this frame, which would keep the error, and with it the reader that raises it, in a circle.
            found = Look(is_gone=True) if error.errno in _GONE else Look(failure=error.with_traceback(None))
        return found._replace(watch=number, time=time.time())

    def cut(self, found: Look, *, is_last: bool) -> list[str]:
        """Give the lines that are complete with what was found, and what is left at the end."""
        blocks: list[Cut] = []
        if found.was_cut:
            # The line before the gap must not run into the one after it.
            blocks.append(self._cutter.finish())
        blocks.append(self._cutter.feed(found.data))
        if is_last:
            blocks.append(self._cutter.finish())
        return b"".join(block.data for block in blocks).decode(errors="replace").split("\n")[:-1]

    def _read(self) -> Look:
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY
        descriptor = keep_private(os.open(self.file.path, flags))
        try:
            about = os.fstat(descriptor)
            if not self.file.is_the_same(about):
                return Look(is_gone=True)
            was_cut = about.st_size < self._position
            if was_cut:
                self._position = 0
            elif self._last is not None:
                self._position = self._go_back(descriptor, self._last)
            self._last = None
            data = os.pread(descriptor, CHUNK_BYTES, self._position)
            self._position += len(data)
            return Look(data, was_cut=was_cut)
        finally:
            close_private(descriptor)

    def _go_back(self, descriptor: int, last: int) -> int:
        """Find where the last lines begin, no further back than they can be long without being cut.

        Where one is longer than that (a progress bar, perhaps), they begin within it.
        """
        wanted = last + 1  # line ends: the one before the first of these lines, and one of each but the open one
        if self._was_over and (not last or os.pread(descriptor, 1, max(self._position - 1, 0)) != b"\n"):
            wanted = last
        start = self.file.start if self.file.start <= self._position else 0
        limit = max(start, self._position - wanted * LINE_LIMIT)
        place = beginning = self._position
        while place > limit:
            size = min(CHUNK_BYTES, place - limit)
            place -= size
            data = os.pread(descriptor, size, place)
            count = data.count(b"\n")
            if count >= wanted:
                end = len(data)
                for _ in range(wanted):
                    end = data.rfind(b"\n", 0, end)
                return place + end + 1
            if count:
                wanted -= count
                beginning = place + data.index(b"\n") + 1
        return start if limit == start else max(limit, beginning - wanted * LINE_LIMIT)
