"""Copies of a stream: readers with a position of their own, for the console and for the filtered file.

A copy that keeps up takes each chunk as it comes in. One whose outlet is slow stops taking, and when the outlet has
room again it reads them back from where it stopped: nothing is dropped, memory stays bounded, and neither the
rank nor its file waits.
"""

import asyncio
from typing import Final, Protocol

from aioelastic._base.defaults import CHUNK_BYTES, PARTIAL_LINE_DELAY
from aioelastic._base.threads import Mailbox
from aioelastic._logs.consoles import Console
from aioelastic._logs.intakes import Intake
from aioelastic._logs.lines import Cut, LineCutter, LineFilter, prefixed
from aioelastic._logs.outlets import Giver, Outlet

_OUTSTANDING_LIMIT = 16 * CHUNK_BYTES
"""Bytes a copy may have in its outlet before it counts as behind; below 1 MiB a busy machine alone makes it so."""


_COLOURS: Final = (36, 33, 35, 32, 34, 96, 95, 92)
"""Colours of the ranks (SGR), told apart on light and on dark; red, which means a failure, is none of them."""


class CopyTarget(Protocol):
    """Where a copy's records go."""

    shows_partials: bool
    """Whether a line without an end is shown after a silence."""

    def deliver(self, giver: Giver, cut: Cut) -> int:
        """Put what a cutter gave into the outlet; give how many bytes that were."""
        ...

    def end(self, giver: Giver) -> int:
        """Tidy up after the last record; give how many bytes were put."""
        ...

    def miss(self, count: int) -> None:
        """Count bytes that will not come."""
        ...

    def forget(self, giver: Giver) -> None:
        """Drop, and count, what the outlet has not begun to write."""
        ...


class ConsoleTarget:
    """The console, with a prefix before each line (`CopyTarget`)."""

    shows_partials = True

    def __init__(self, console: Console, prefix: bytes) -> None:
        self._console = console
        self._prefix = prefix

    def deliver(self, giver: Giver, cut: Cut) -> int:
        """Show the records, or the part of one."""
        whole = cut.data.endswith((b"\n", b"\r"))
        data = prefixed(cut.data, self._prefix) if whole else self._prefix + cut.data
        return self._console.show(giver, data, prefix=self._prefix, continues=cut.continues)

    def end(self, giver: Giver) -> int:
        """End the line that is open, if it is ours."""
        return self._console.leave(giver)

    def miss(self, count: int) -> None:
        """Count bytes that the console will not get."""
        self._console.miss(count)

    def forget(self, giver: Giver) -> None:
        """Drop, and count, what the console has not begun to write."""
        self._console.forget(giver)


def coloured(prefix: bytes, rank: int) -> bytes:
    """Give a rank's prefix in the rank's colour; one that has colours of its own, or is empty, as it is."""
    if not prefix or b"\x1b" in prefix:
        return prefix
    return b"\x1b[%dm%b\x1b[0m" % (_COLOURS[rank % len(_COLOURS)], prefix)


class FilterTarget:
    """The filtered copy of all teed ranks (`CopyTarget`); whole lines only."""

    shows_partials = False

    def __init__(self, outlet: Outlet, line_filter: LineFilter) -> None:
        self._outlet = outlet
        self._filter = line_filter

    def deliver(self, giver: Giver, cut: Cut) -> int:
        """Copy the lines that the filter selects."""
        selected = self._filter.select(cut.data)
        if selected:
            self._outlet.put(giver, selected)
        return len(selected)

    def end(self, giver: Giver) -> int:
        """Do nothing: no line is ever left open."""
        del giver
        return 0

    def miss(self, count: int) -> None:
        """Count bytes of the stream that were not looked at."""
        self._outlet.miss(count)

    def forget(self, giver: Giver) -> None:
        """Drop, and count, what the file has not begun to take."""
        self._outlet.forget(giver)


class StreamCopy:
    """One copy of one stream (a `Giver`)."""

    def __init__(self, target: CopyTarget, cutter: LineCutter, intake: Intake, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self._loop = asyncio.get_running_loop()
        self._target = target
        self._cutter = cutter
        self._intake = intake
        self._received = 0
        self._position = 0
        self._outstanding = 0
        self._room: asyncio.Future[None] | None = None
        self._catching_up: asyncio.Task[None] | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._last_taken = 0.0

    @property
    def keeps_up(self) -> bool:
        """Whether the next chunk will be taken as it comes."""
        return self._catching_up is None and self._outstanding < _OUTSTANDING_LIMIT

    def offer(self, chunk: bytes) -> None:
        """Take the stream's next bytes, or read them from the buffer later."""
        keeps_up = self.keeps_up
        self._received += len(chunk)
        if keeps_up:
            self._take(chunk)
        elif self._catching_up is None:
            self._catching_up = self._loop.create_task(self._catch_up())

    def miss(self, count: int) -> None:
        """Count bytes of the stream, after those received, that cannot be had."""
        self._received += count
        if self._catching_up is None:
            self._skip_lost(count)

    def written(self, count: int) -> None:
        """Note that so many of our bytes have left the outlet."""
        self._outstanding -= count
        if self._room is not None and not self._room.done():
            self._room.set_result(None)

    async def finish(self) -> None:
        """Catch up to the stream's end, show what is left, and wait until the outlet has it all."""
        if self._catching_up is not None:
            await asyncio.wait([self._catching_up])
        if self._silence is not None:
            self._silence.cancel()
        self._deliver(self._cutter.finish())
        self._outstanding += self._target.end(self)
        while self._outstanding > 0:
            await self._some_room()

    def give_up(self) -> None:
        """Stop where we are, and count what will be missing."""
        for pending in (self._catching_up, self._silence):
            if pending is not None:
                pending.cancel()
        self._target.miss(self._received - self._position)
        self._position = self._received
        self._deliver(self._cutter.finish())
        self._target.forget(self)

    async def _catch_up(self) -> None:
        while self._position < self._received:
            while self._outstanding >= _OUTSTANDING_LIMIT:
                await self._some_room()
            start, piece = await self._intake.read(self._position)
            if start > self._position:
                self._skip_lost(start - self._position)
            if piece:
                self._take(piece)
        self._catching_up = None

    def _skip_lost(self, lost: int) -> None:
        self._position += lost
        self._target.miss(lost)
        # The line before the gap must not run into the one after it.
        self._deliver(self._cutter.finish())

    def _take(self, data: bytes) -> None:
        self._position += len(data)
        self._deliver(self._cutter.feed(data))
        if self._target.shows_partials:
            self._last_taken = self._loop.time()
            if self._silence is None and self._cutter.partial:
                self._silence = self._loop.call_later(PARTIAL_LINE_DELAY, self._on_silence)

    def _deliver(self, cut: Cut) -> None:
        if cut.data:
            self._outstanding += self._target.deliver(self, cut)

    def _on_silence(self) -> None:
        """Show a line without an end, once nothing has come for a while; one timer serves for many chunks."""
        self._silence = None
        if not self._cutter.partial:
            return
        left = self._last_taken + PARTIAL_LINE_DELAY - self._loop.time()
        if left <= 0 and (self._position < self._received or not self._intake.is_silent()):
            # It was we who kept it waiting: a busy loop comes to its timers before it comes to what has arrived.
            left = PARTIAL_LINE_DELAY
        if left > 0:
            self._silence = self._loop.call_later(left, self._on_silence)
        else:
            self._deliver(self._cutter.take_partial())

    async def _some_room(self) -> None:
        self._room = self._loop.create_future()
        try:
            await self._room
        finally:
            self._room = None
