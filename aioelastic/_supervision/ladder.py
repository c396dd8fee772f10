"""The termination ladder: a signal, a shared grace, SIGKILL, and a bound on that too."""

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import anyio

from aioelastic._base.defaults import REAP_TIMEOUT
from aioelastic._processes.rank_process import ProcessTable, RankProcess

_LOOK_AGAIN = 0.5
"""Seconds after which the table is looked at again although nothing that is awaited has ended.

A fork can have slipped through between the look and the signal, and a process that opens a session of its own leaves
the rank's without any event: it would be waited for until the deadline.
"""


class StopOrder:
    """What the group was asked to do about its end; a later request only hurries it.

    Attributes:
        signal: The signal to begin with.
        deadline: Loop time at which SIGKILL follows.
    """

    def __init__(self, number: int, deadline: float) -> None:
        self.signal = number
        self.deadline = deadline
        self._grace: anyio.CancelScope | None = None

    def hurry(self, deadline: float) -> None:
        """Bring the deadline forward; a later one changes nothing."""
        self.deadline = min(self.deadline, deadline)
        if self._grace is not None:
            self._grace.deadline = self.deadline

    @contextmanager
    def grace(self) -> Iterator[None]:
        """Leave the block at the deadline, wherever it stands by then."""
        with anyio.CancelScope(deadline=self.deadline) as self._grace:
            yield
        self._grace = None


class Ladder:
    """Ends a group's processes: leaders and all that is left in their sessions.

    Args:
        ranks: The started ranks.
        table: The system's processes.
        on_signal: Told of each rank whose live leader is signalled, and with what, right before.
    """

    def __init__(
        self, ranks: Sequence[RankProcess], table: ProcessTable, on_signal: Callable[[int, int], None]
    ) -> None:
        self._ranks = ranks
        self._table = table
        self._on_signal = on_signal

    async def descend(self, order: StopOrder) -> dict[int, list[int]]:
        """Signal, wait up to the order's deadline for all sessions to be empty, then kill, with a bound.

        Returns:
            Rank -> pids of processes that SIGKILL did not end (uninterruptible sleep); empty in all normal cases.
        """
        alive = self.survey()
        if alive:
            self.send(order.signal, alive)
            with order.grace():
                while alive:
                    with anyio.move_on_after(_LOOK_AGAIN):
                        await self._table.wait_gone(_pids(alive))
                    alive = self.survey()
        if alive:
            with anyio.move_on_after(REAP_TIMEOUT):
                while alive := self.survey():
                    self.send(signal.SIGKILL, alive)
                    with anyio.move_on_after(_LOOK_AGAIN):
                        await self._table.wait_gone(_pids(alive))
            alive = self.survey()
        return alive

    def survey(self) -> dict[int, list[int]]:
        """Look which ranks still have live processes: rank -> pids."""
        found = self._table.live_members({rank.pid: rank.has_exited() for rank in self._ranks})
        return {rank.local_rank_id: found[rank.pid] for rank in self._ranks if rank.pid in found}

    def send(self, number: int, alive: dict[int, list[int]]) -> None:
        """Signal what is alive, every group at once, then SIGCONT so that stopped processes hear it."""
        numbers = (number,) if number == signal.SIGKILL else (number, signal.SIGCONT)
        for rank in self._ranks:
            members = alive.get(rank.local_rank_id)
            if members is None:
                continue
            if not rank.has_exited():
                self._on_signal(rank.local_rank_id, number)
            for each in numbers:
                sent = rank.signal_group(each, members)
                if sent != each:
                    self._on_signal(rank.local_rank_id, sent)


def _pids(alive: dict[int, list[int]]) -> list[int]:
    return [pid for members in alive.values() for pid in members]
