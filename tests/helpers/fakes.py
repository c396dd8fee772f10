"""Hand-written stand-ins for what no test can make for real: processes that never die, numbers given to strangers."""

import asyncio
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

from aioelastic._processes.members import Member
from aioelastic._processes.rank_process import ExitStatus

POLITE: Final = frozenset({int(signal.SIGTERM), int(signal.SIGINT), int(signal.SIGKILL)})
"""What an ordinary process dies of."""

DEAF: Final = frozenset({int(signal.SIGKILL)})
"""What a process dies of that ignores everything it can."""

UNKILLABLE: Final[frozenset[int]] = frozenset()
"""What a process in uninterruptible sleep dies of."""


class FakeTable:
    """Processes that exist in memory only (`ProcessTable`).

    Attributes:
        looks: How often the whole table was read.
        sessions: Live process -> its session, a rank's or another one.
        tokens: Process -> the rank's token that it bears.
    """

    def __init__(self) -> None:
        self.looks = 0
        self.sessions: dict[int, int] = {}
        self.tokens: dict[int, str] = {}
        self._fatal: dict[int, frozenset[int]] = {}
        self._on_death: dict[int, Callable[[int], None]] = {}
        self._death = asyncio.Event()

    def add(self, pid: int, session: int, fatal: frozenset[int], on_death: Callable[[int], None] | None = None) -> None:
        """Bring a process into being that dies of the given signals."""
        self.sessions[pid] = session
        self._fatal[pid] = fatal
        if on_death is not None:
            self._on_death[pid] = on_death

    def deliver(self, pid: int, number: int) -> None:
        """Give a process a signal."""
        if pid in self.sessions and number in self._fatal[pid]:
            self.bury(pid)
            if pid in self._on_death:
                self._on_death.pop(pid)(number)

    def bury(self, pid: int) -> None:
        """Take a process away."""
        del self.sessions[pid]
        self._death.set()

    def members(self, leaders: Mapping[int, bool], groups: Collection[str] = ()) -> list[Member]:
        """See `ProcessTable`."""
        self.looks += 1
        found = [Member(pid, session) for pid, session in self.sessions.items() if session in leaders]
        away = self.sessions.keys() - {member.pid for member in found}
        found += [Member(pid, 0, token) for pid, token in self.tokens.items() if pid in away and token[:-2] in groups]
        return found

    async def wait_gone(self, pids: Collection[int]) -> None:
        """See `ProcessTable`."""
        while all(pid in self.sessions for pid in pids):
            self._death.clear()
            await self._death.wait()


class FakeRank:
    """A rank of such processes (`RankProcess`): a leader and its children, which all get the group's signals.

    Attributes:
        signals: What its group was sent, in order.
        on_signal: Called with each signal before it is delivered.
    """

    def __init__(
        self,
        table: FakeTable,
        local_rank_id: int,
        *,
        fatal: frozenset[int] = POLITE,
        children: Iterable[frozenset[int]] = (),
        on_exit: Callable[[], None] | None = None,
    ) -> None:
        self.local_rank_id = local_rank_id
        self.pid = 1000 * (local_rank_id + 1)
        self.signals: list[int] = []
        self.on_signal: Callable[[int], None] = lambda _: None
        self._table = table
        self._on_exit = on_exit
        self._status: asyncio.Future[ExitStatus] = asyncio.get_running_loop().create_future()
        table.add(self.pid, self.pid, fatal, lambda number: self._see(ExitStatus(code=-number)))
        for index, each in enumerate(children, 1):
            table.add(self.pid + index, self.pid, each)

    def exit(self, code: int | None, *, reaped_elsewhere: bool = False) -> None:
        """Have the leader end by itself, if it has not."""
        if self.has_exited():
            return
        self._table.bury(self.pid)
        self._see(ExitStatus(code=code, reaped_elsewhere=reaped_elsewhere))

    def has_exited(self) -> bool:
        """See `RankProcess`."""
        return self._status.done()

    async def wait_status(self) -> ExitStatus:
        """See `RankProcess`."""
        await asyncio.wait([self._status])
        return self._status.result()

    def signal_group(self, number: int, members: Collection[Member]) -> int:
        """See `RankProcess`."""
        self.signals.append(number)
        self.on_signal(number)
        for member in members:
            self._table.deliver(member.pid, number)
        return number

    def _see(self, status: ExitStatus) -> None:
        if self._on_exit is not None:
            self._on_exit()
        self._status.set_result(status)
