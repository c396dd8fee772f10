"""The pump of one stream: from the rank's pipe into what keeps its bytes and past its copies.

::

    rank ──pipe──▶ Intake ──▶ the rank's file (every byte)
                     │              │ read again by who fell behind
                     ├─▶ StreamCopy ┴─▶ LineCutter ─▶ prefix ─▶ console
                     └─▶ StreamCopy ──▶ LineCutter ─▶ filter ─▶ filtered file
"""

import asyncio
from collections.abc import Sequence

from aioelastic._logs.copies import StreamCopy
from aioelastic._logs.intakes import Intake
from aioelastic._logs.log_files import Bell


class StreamPump:
    """Pumps one stream from `begin` until its end, or until it is cut (a `Receiver`).

    Attributes:
        intake: How the bytes come in.
        done: The task that ends the stream: the copies have it all, the file is closed.
    """

    def __init__(self, intake: Intake, copies: Sequence[StreamCopy | Bell]) -> None:
        self.intake = intake
        self._copies = copies
        self._ended = asyncio.get_running_loop().create_future()
        intake.connect(self)
        self._has_begun = False
        self._await_end()

    @property
    def at_end(self) -> "asyncio.Future[None]":
        """Done as soon as nothing more is taken from the pipe."""
        return self._ended

    def begin(self) -> None:
        """Start to take bytes from the pipe."""
        self.intake.begin()

    def cut(self) -> None:
        """Take what is in the pipe now, then end the stream although somebody still holds it."""
        self.intake.cut()

    def give_up(self) -> None:
        """End at once, without waiting for copies; count what they will not get."""
        self.intake.stop()
        if not self.done.done():
            self.done.cancel()

    @property
    def keeps_up(self) -> bool:
        """Whether all copies will take the next bytes as they come."""
        return all(copy.keeps_up for copy in self._copies)

    def offer(self, chunk: bytes) -> None:
        """Pass the stream's next bytes to the copies."""
        for copy in self._copies:
            copy.offer(chunk)

    def miss(self, count: int) -> None:
        """Have the copies count bytes that nobody can get any more."""
        for copy in self._copies:
            copy.miss(count)

    def end(self) -> None:
        """Learn that nothing more comes in."""
        if not self._ended.done():
            self._ended.set_result(None)

    def _await_end(self) -> None:
        self.done = asyncio.get_running_loop().create_task(self._finish())
        self.done.add_done_callback(self._await_end_again)

    def _await_end_again(self, _: "asyncio.Task[None]") -> None:
        # The end of the event loop cancels a task before its first step, too: then nothing was closed.
        if not self._has_begun:
            self._await_end()

    async def _finish(self) -> None:
        self._has_begun = True
        try:
            await asyncio.wait([self._ended])
            for copy in self._copies:
                await copy.finish()
        except asyncio.CancelledError:
            # We were given up, or the event loop ends and cancels all tasks, readers of the file included.
            self.intake.stop()
            for copy in self._copies:
                copy.give_up()
            raise
        finally:
            await self.intake.close()
