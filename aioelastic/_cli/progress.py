"""What a person is told of a run while it goes on."""

import asyncio
from collections.abc import AsyncIterator

from aioelastic._base.counts import counted
from aioelastic._base.durations import precise, spoken
from aioelastic._base.signals import signal_name
from aioelastic._cli.screen import Screen
from aioelastic._errors.report import rank_ranges
from aioelastic._supervision.events import Event, EventKind
from aioelastic._supervision.exits import ExitCause

_SPEAKER = "aioelastic: "
"""What the launcher's own lines begin with, so that they can be told from those of the ranks."""

_SEPARATOR = " · "


class Progress:
    """What the events of a run mean to who watches it (without a terminal, and without a clock).

    Args:
        nprocs: The ranks of this node.
        max_restarts: How many restarts there may be.
    """

    def __init__(self, nprocs: int, max_restarts: int) -> None:
        self._nprocs = nprocs
        self._max_restarts = max_restarts
        self._signals = 0
        self._begin(0)

    def see(self, event: Event) -> list[str]:
        """Take the next event; give the lines that say what matters of it even to who sees no status."""
        self._count(event)
        match event.kind:
            case EventKind.ATTEMPT_STARTED:
                self._begin(event.attempt or 0)
            case EventKind.GROUP_STARTED:
                self._doing = ""
            case EventKind.GROUP_STOPPING:
                self._doing = f"stopping ({event.signal})"
            case EventKind.ATTEMPT_ENDED:
                self._doing = "ended"
                return self._killed_lines()
            case EventKind.RESTART_PLANNED:
                delay = precise(event.delay or 0)
                self._doing = f"next attempt in {delay}"
                following = f"attempt {event.attempt} begins in {delay}{self._restart_count(event.attempt or 0)}"
                return [f"{_SPEAKER}attempt {self._attempt} failed{self._root_cause}; {following}"]
        return []

    def signalled(self, number: int) -> str:
        """Give the line for a signal that the launcher was sent."""
        self._signals += 1
        name = signal_name(number)
        if self._signals > 1:
            return f"{_SPEAKER}{name} again: the ranks are being killed"
        again = "press Ctrl-C again" if name == "SIGINT" else "send it again"
        return f"{_SPEAKER}{name}: the ranks are being stopped; {again} to kill them"

    def status(self, seconds: float) -> str:
        """Say in one line how things stand.

        Args:
            seconds: How long the run has been going on.
        """
        parts = [
            f"attempt {self._attempt}" if self._max_restarts else "",
            self._doing,
            f"{len(self._up)} of {counted(self._nprocs, 'rank')} up",
            f"{len(self._done)} done" if self._done else "",
            f"{len(self._failed)} failed" if self._failed else "",
            spoken(seconds),
        ]
        return _SEPARATOR.join(filter(None, parts))

    def _begin(self, attempt: int) -> None:
        self._attempt = attempt
        self._doing = "starting"
        self._root_cause = ""
        self._up: set[int] = set()
        self._done: set[int] = set()
        self._failed: set[int] = set()
        self._killed: set[int] = set()

    def _count(self, event: Event) -> None:
        rank = event.rank
        if rank is None:
            return
        match event.kind:
            case EventKind.RANK_STARTED:
                self._up.add(rank)
            case EventKind.RANK_EXITED:
                self._up.discard(rank)
                if event.cause is not ExitCause.STOPPED:
                    (self._failed if event.exitcode else self._done).add(rank)
            case EventKind.GROUP_FAILED:
                # A function that ended with 0 has failed, too, if its value is missing.
                self._done.discard(rank)
                self._failed.add(rank)
                self._root_cause = f" (rank {rank}: {_ending(event)})"
            case EventKind.RANK_KILLED:
                self._killed.add(rank)

    def _restart_count(self, number: int) -> str:
        # After a healthy spell the restarts are counted anew, so there may be more of them.
        return f" (restart {number} of {self._max_restarts})" if number <= self._max_restarts else ""

    def _killed_lines(self) -> list[str]:
        ranks, self._killed = sorted(self._killed), set()
        if not ranks:
            return []
        subject = f"rank {ranks[0]}" if len(ranks) == 1 else f"ranks {rank_ranges(ranks)}"
        return [f"{_SPEAKER}{subject} had to be killed"]


def _ending(event: Event) -> str:
    if event.signal is not None:
        return event.signal
    return "exit code unknown" if event.exitcode is None else f"exit code {event.exitcode}"


async def follow(
    screen: Screen, events: AsyncIterator[Event], progress: Progress, *, since: float | None = None
) -> None:
    """Show a run's events as they come, until they end: lines, and where the screen has one, the status.

    Args:
        screen: Where to show them.
        events: The agent's events.
        progress: What makes words of them; `Progress.signalled` may be called meanwhile.
        since: When the run began (time of the event loop); now when not given.
    """
    clock = _StatusClock(screen, progress, since)
    try:
        async for event in events:
            for line in progress.see(event):
                screen.say(line)
            clock.show()
    finally:
        clock.stop()


class _StatusClock:
    """Shows the status, and shows it again with each second; without a status line it does nothing at all."""

    def __init__(self, screen: Screen, progress: Progress, since: float | None) -> None:
        self._screen = screen
        self._progress = progress
        self._loop = asyncio.get_running_loop()
        self._begin = self._loop.time() if since is None else since
        self._next: asyncio.TimerHandle | None = None
        if screen.shows_status:
            self._tick()

    def show(self) -> None:
        """Show how things stand now."""
        if self._next is not None:
            self._screen.show_status(self._progress.status(self._loop.time() - self._begin))

    def stop(self) -> None:
        """Take the status away."""
        if self._next is not None:
            self._next.cancel()
            self._screen.show_status("")

    def _tick(self) -> None:
        elapsed = self._loop.time() - self._begin
        self._next = self._loop.call_at(self._begin + int(elapsed) + 1, self._tick)
        self.show()
