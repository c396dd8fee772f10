"""The lines of a group's log files as data, at the reader's own pace.

A reader holds a chunk of one file and asks for the next one when it has given all lines of it. So it never is in the
way of a rank or of a pump, whatever it does meanwhile; what it has not read yet is in the files.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from aioelastic._base.defaults import CHUNK_BYTES
from aioelastic._logs.log_files import Place
from aioelastic._logs.std import Std

if TYPE_CHECKING:
    # Every program that starts a group imports this module, for the name of what few of them ask for.
    from aioelastic._logs.file_tails import FileTail, Look
    from aioelastic._logs.file_watch import FileWatch
    from aioelastic._logs.reading import Reading

_LINES_PER_TURN: Final = 200
"""Lines that are given in one turn of the loop: others want to run, too."""


@dataclass(frozen=True, slots=True)
class LogLine:
    r"""A line that a rank has written, as `PContext.lines` gives it.

    Attributes:
        rank: The rank.
        stream: `Std.OUT` or `Std.ERR`.
        time: When the line was read from the rank's log file, or its end was where it came in pieces (seconds since
            the epoch). For who keeps up that is a moment after it was written; for who reads what was written before,
            it can be long after.
        text: The line as the console shows it, without its end and without a prefix. Of a progress bar (``\r``) that is
            the last state; a line over 64 KiB comes in marked pieces; bytes that are no UTF-8 are U+FFFD.
    """

    rank: int
    stream: Std
    time: float
    text: str


class LineStream(AsyncIterator[LogLine]):
    """The lines of a group; ends when the group has ended and all its lines were given.

    It is a reader of its own: any number of them may read, each at its own pace. Who reads slowly, or not at all, costs
    a bounded amount of memory, never holds up a rank, and finds all lines in the files when it reads on.

    The lines of one stream of a rank are in their order; those of different streams come as they are read.

    A log file that is emptied (logrotate's ``copytruncate``) is read on from its new beginning; what was not read
    by then is lost. Of one that is removed, or replaced by another one, nothing more is given. If the system fails to
    read a file, there is an `OSError`, and whoever asks again may have more luck.

    Cancelling a wait for the next line loses nothing.
    """

    def __init__(self, tails: "Iterable[FileTail]", reading: "Reading") -> None:
        self._tails = {tail.place: tail for tail in tails}
        self._reading: Reading | None = reading
        self._news: deque[FileTail] = deque()
        self._looking = False
        self._texts: deque[str] = deque()
        self._place: Place = (0, Std.NONE)
        self._time = 0.0
        self._failure: OSError | None = None
        self._given = 0
        self._woken: asyncio.Future[None] | None = None
        for tail in self._tails.values():
            self._queue(tail)

    def __aiter__(self) -> "LineStream":
        return self

    async def __anext__(self) -> LogLine:
        if self._given >= _LINES_PER_TURN:
            self._given = 0
            await asyncio.sleep(0)
        while not self._texts:
            self._raise_failure()
            if not self._tails:
                raise StopAsyncIteration
            self._look()
            # One for all tasks that read the same stream; it belongs to nobody, so that none can cancel it.
            if self._woken is None:
                self._woken = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._woken])
            self._given = 0
        self._given += 1
        rank, stream = self._place
        return LogLine(rank, stream, self._time, self._texts.popleft())

    def stir(self, place: Place) -> None:
        """Learn that a file has changed."""
        tail = self._tails.get(place)
        if tail is not None:
            self._queue(tail)
            self._wake()

    def end(self, place: Place) -> None:
        """Learn that a file will not change any more."""
        tail = self._tails.get(place)
        if tail is not None:
            tail.has_ended = True
            self.stir(place)

    def _queue(self, tail: "FileTail") -> None:
        if not tail.is_queued:
            tail.is_queued = True
            self._news.append(tail)

    def _wake(self) -> None:
        """Have those who wait look again."""
        if self._woken is not None and not self._woken.done():
            self._woken.set_result(None)
        self._woken = None

    def _look(self) -> None:
        """Have a thread look into the next file that has news, unless one is at it."""
        reading = self._reading
        if self._looking or not self._news or reading is None:
            return
        self._looking = True
        tail = self._news.popleft()
        tail.is_queued = False
        is_last, watch = tail.has_ended, reading.watch
        if tail.file.is_pumped or is_last or (watch is not None and not watch.needs(tail.place)):
            watch = None
        looking = reading.run(tail.look, watch)
        # Not awaited: what it finds must not be lost if whoever waits for it is cancelled.
        looking.add_done_callback(lambda done: self._take(tail, done.result(), watch, is_last=is_last))

    def _take(self, tail: "FileTail", found: "Look", watch: "FileWatch | None", *, is_last: bool) -> None:
        """Take what was found in a file."""
        self._looking = False
        if watch is not None:
            watch.expect(found.watch, tail.place)
        self._failure = found.failure
        if found.failure is not None or len(found.data) == CHUNK_BYTES:
            self._queue(tail)
        elif found.is_gone or is_last:
            self._drop(tail)
        self._place, self._time = tail.place, found.time
        self._texts.extend(tail.cut(found, is_last=tail.place not in self._tails))
        self._wake()

    def _drop(self, tail: "FileTail") -> None:
        """Be done with a file."""
        del self._tails[tail.place]
        if tail.is_queued:
            self._news.remove(tail)
        if not self._tails:
            # It ends with the last one who holds it.
            self._reading = None

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        try:
            if failure is not None:
                raise failure
        finally:
            # Its traceback holds this frame: a circle would keep the reader when all others have dropped it.
            del failure
