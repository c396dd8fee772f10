"""How late an event loop's timers are."""

import asyncio
import time
from collections.abc import Awaitable
from typing import Final

PERIOD: Final = 0.001
"""Seconds between a timer's call and the next."""


class LoopDelays:
    """Watches the running loop, from `start` to `stop`."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._delays: list[float] = []
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to watch."""
        # Not by the loop's own clock, as uvloop's stands still until it looks for events again.
        self._due = time.monotonic() + PERIOD
        self._timer = self._loop.call_later(PERIOD, self._tick)

    def _tick(self) -> None:
        self._delays.append(time.monotonic() - self._due)
        self.start()

    def stop(self) -> dict[str, float]:
        """Stop to watch, and give the delays in milliseconds: ``p50``, ``p99`` and ``max``."""
        assert self._timer is not None
        # A loop that never came to the timer was late by all that time.
        self._delays.append(max(0.0, time.monotonic() - self._due))
        self._timer.cancel()
        late = sorted(self._delays)
        return {
            "p50": late[len(late) // 2] * 1e3,
            "p99": late[len(late) * 99 // 100] * 1e3,
            "max": late[-1] * 1e3,
        }


async def watch_delays(awaited: Awaitable[object]) -> dict[str, float]:
    """Await something, and give how late timers of 1 ms were meanwhile, in milliseconds."""
    delays = LoopDelays()
    delays.start()
    try:
        await awaited
    finally:
        late = delays.stop()
    return late
