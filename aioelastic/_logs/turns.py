"""How the streams of a group share the event loop: bounded work in each of its turns.

What a stream's bytes cost depends on what they are and who looks at them: a pattern that is looked for in very short
lines takes many times as long as a word in longer ones. So it is time that is shared out.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable

from aioelastic._base.defaults import CHUNK_BYTES, PIECE_BYTES

_TURN = 0.001
"""Seconds of the loop's thread after which other things than streams have their turn."""

_LONG = 0.001
_SHORT = 0.0004
"""Seconds of the loop's thread for one portion, above and below which the next ones become smaller and larger."""

_LEAST = 4096
"""Bytes of the smallest portion: below it the cost is that of the call."""


class Turns:
    """Calls those who have something to hand on, one after the other, for a bounded time in each turn of the loop."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._waiting: deque[Callable[[], None]] = deque()
        self._called = False

    def ask(self, deliver: Callable[[], None]) -> None:
        """Have a callback called once, after all who have asked before; it may ask again."""
        self._waiting.append(deliver)
        if not self._called:
            self._called = True
            self._loop.call_soon(self._serve)

    def _serve(self) -> None:
        # The time of this thread alone: what others take of the machine makes nobody's turn shorter.
        end = time.thread_time() + _TURN
        try:
            while self._waiting:
                self._waiting.popleft()()
                if time.thread_time() >= end:
                    break
        finally:
            self._called = bool(self._waiting)
            if self._called:
                self._loop.call_soon(self._serve)


class Portion:
    """How many of one stream's bytes are handed on at a time: as many as take a fraction of a millisecond.

    Attributes:
        size: Bytes of the next portion.
    """

    def __init__(self) -> None:
        self.size = CHUNK_BYTES

    def note(self, count: int, seconds: float) -> None:
        """Learn how long so many bytes have taken."""
        if seconds > _LONG:
            self.size = max(int(count * _SHORT / seconds), _LEAST)
        elif seconds < _SHORT and count >= self.size:
            self.size = min(self.size * 2, PIECE_BYTES)
