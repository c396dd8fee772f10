"""The termination ladder: a signal, a shared grace, SIGKILL, and a bound on that too."""

import signal
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager

import anyio

from aioelastic._base.defaults import REAP_TIMEOUT
from aioelastic._base.threads import in_thread
from aioelastic._processes.members import Member, signal_member
from aioelastic._processes.rank_process import ProcessTable, RankProcess
from aioelastic._processes.tokens import group_and_rank

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
        self._more: list[int] = []
        self._grace: anyio.CancelScope | None = None
        self._pause: anyio.CancelScope | None = None

    def hurry(self, deadline: float, number: int | None = None) -> None:
        """Bring the deadline forward, if that is earlier, and have another signal sent meanwhile."""
        self.deadline = min(self.deadline, deadline)
        if self._grace is not None:
            self._grace.deadline = self.deadline
        if number is not None:
            self._more.append(number)
            if self._pause is not None:
                self._pause.cancel()

    @contextmanager
    def grace(self) -> Iterator[None]:
        """Leave the block at the deadline, wherever it stands by then."""
        with anyio.CancelScope(deadline=self.deadline) as self._grace:
            yield
        self._grace = None

    @contextmanager
    def pause(self) -> Iterator[None]:
        """Leave the block when it is time to look again, or when another signal is to be sent."""
        with anyio.move_on_after(_LOOK_AGAIN) as self._pause:
            if self._more:
                self._pause.cancel()
            yield
        self._pause = None

    def more_signals(self) -> list[int]:
        """Give the signals that were asked for since the last call."""
        more, self._more = self._more, []
        return more


class Ladder:
    """Ends a group's processes: leaders and all that is left of their ranks.

    Args:
        ranks: The started ranks.
        table: The system's processes.
        on_signal: Told of each rank whose live leader is signalled, and with what, right before.
        groups: The group's token, if what has left the ranks' sessions is to be ended, too; else nothing.
    """

    def __init__(
        self,
        ranks: Sequence[RankProcess],
        table: ProcessTable,
        on_signal: Callable[[int, int], None],
        groups: Collection[str] = (),
    ) -> None:
        self._ranks = ranks
        self._table = table
        self._on_signal = on_signal
        self._groups = groups
        self._signalled: set[Member] = set()

    async def descend(self, order: StopOrder) -> dict[int, list[int]]:
        """Signal, wait up to the order's deadline for all members to be gone, then kill, with a bound.

        Returns:
            Rank -> pids of processes that SIGKILL did not end (uninterruptible sleep); empty in all normal cases.
        """
        alive = await self.survey()
        if alive:
            self.send(order.signal, alive)
            with order.grace():
                while alive:
                    with order.pause():
                        await self._table.wait_gone(_pids(alive))
                    alive = await self.survey()
                    for number in order.more_signals():
                        self.send(number, alive)
                    self.send(order.signal, self._left_behind(alive))
        if alive:
            with anyio.move_on_after(REAP_TIMEOUT):
                while alive := await self.survey():
                    self.send(signal.SIGKILL, alive)
                    with anyio.move_on_after(_LOOK_AGAIN):
                        await self._table.wait_gone(_pids(alive))
            alive = await self.survey()
        return {rank: [member.pid for member in members] for rank, members in alive.items()}

    async def survey(self) -> dict[int, list[Member]]:
        """Look which ranks still have live processes: rank -> members."""
        leaders = {rank.pid: rank for rank in self._ranks}
        asked = {pid: rank.has_exited() for pid, rank in leaders.items()}
        alive: dict[int, list[Member]] = {}
        for member in await in_thread(self._table.members, asked, self._groups):
            rank = leaders[member.session].local_rank_id if member.session else group_and_rank(member.token)[1]
            alive.setdefault(rank, []).append(member)
        return alive

    def _left_behind(self, alive: dict[int, list[Member]]) -> dict[int, list[Member]]:
        """Find who came after the signal, by a rank that is gone; those of a living one may be at work for its end.

        Who has left the session since then counts as new: a signal between fork and exec may be lost on a shell.
        """
        gone = {rank.local_rank_id for rank in self._ranks if rank.has_exited()}
        new = {rank: [each for each in alive[rank] if each not in self._signalled] for rank in alive.keys() & gone}
        return {rank: members for rank, members in new.items() if members}

    def send(self, number: int, alive: dict[int, list[Member]]) -> None:
        """Signal what is alive, every group at once, then SIGCONT so that stopped processes hear it."""
        self._signalled.update(member for members in alive.values() for member in members)
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
        for rank_id in alive.keys() - {rank.local_rank_id for rank in self._ranks}:
            # Of a rank that could not be started after all.
            for member in alive[rank_id]:
                for each in numbers:
                    signal_member(member, each)


def _pids(alive: dict[int, list[Member]]) -> list[int]:
    return [member.pid for members in alive.values() for member in members]
