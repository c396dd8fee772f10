"""What the guard does when its supervisor is gone: signal, grace, SIGKILL; and the last lines go to their files."""

import contextlib
import os
import select
import signal
import time
from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from aioelastic._base.defaults import CHUNK_BYTES, PIPE_BYTES
from aioelastic._guard.ledger import Entries, read_ledger
from aioelastic._processes.members import Member, find_members, list_pids, signal_member
from aioelastic._processes.process_handles import open_handle
from aioelastic._processes.tokens import group_and_rank

if TYPE_CHECKING:
    from aioelastic._guard.program import Charge

_SETTLED: Final = 0.25
"""Seconds after which nothing new is to be expected: a process that was just being started bears its mark by then."""

_LOOK_AGAIN: Final = 0.05
"""Seconds between two looks at most: whoever is forked meanwhile is not awaited by anybody."""

_GIVE_UP: Final = 5.0
"""Seconds after the last grace until processes count as unkillable (uninterruptible sleep)."""


def end_orphans(charges: Mapping[str, "Charge"]) -> None:
    """End all processes of some groups, and empty the ranks' pipes meanwhile.

    Args:
        charges: Group's token -> what is held of it.
    """
    _raise_descriptor_limit()
    orphans = Orphans({token: read_ledger(charge.ledger) for token, charge in charges.items()})
    pipes = LastLines([stream for charge in charges.values() for stream in charge.streams.items()])
    began = time.monotonic()
    while True:
        passed = time.monotonic() - began
        alive = orphans.look()
        if (not alive and passed > _SETTLED) or passed > orphans.longest_grace + _GIVE_UP:
            break
        orphans.signal(alive, passed)
        pipes.move(until_one_ends=alive)
    pipes.finish()


class Orphans:
    """The processes of groups that have lost their supervisor.

    Args:
        entries: Group's token -> what its ledger says.
    """

    def __init__(self, entries: Mapping[str, Entries]) -> None:
        self._entries = entries
        self._leaders = {pid: ended for each in entries.values() for pid, ended in each.leaders.items()}
        self._groups = {pid: token for token, each in entries.items() for pid in each.leaders}
        self._marked = [token for token, each in entries.items() if each.terms.sweeps or each.starting]
        self._warned: set[Member] = set()
        self.longest_grace = max((each.terms.grace for each in entries.values()), default=0.0)

    def look(self) -> list[Member]:
        """Give what is alive."""
        return [member for member in find_members(list_pids, self._leaders, self._marked) if self._is_wanted(member)]

    def signal(self, alive: Collection[Member], passed: float) -> None:
        """Send each what is due so many seconds after the supervisor's end."""
        for member in alive:
            terms = self._entries[self._group_of(member)].terms
            if passed >= terms.grace or terms.death_signal == signal.SIGKILL:
                signal_member(member, signal.SIGKILL)
            elif member not in self._warned:
                # Who has left the session since then counts as new: a signal between fork and exec may be lost.
                self._warned.add(member)
                signal_member(member, terms.death_signal)
                signal_member(member, signal.SIGCONT)

    def _group_of(self, member: Member) -> str:
        return self._groups[member.session] if member.session else group_and_rank(member.token)[0]

    def _is_wanted(self, member: Member) -> bool:
        """Leave alone what may have left its session, but not a rank of which nobody knows the process yet."""
        entries = self._entries[self._group_of(member)]
        return bool(member.session) or entries.terms.sweeps or group_and_rank(member.token)[1] in entries.starting


class LastLines:
    """Moves what is left in the ranks' pipes to their files.

    Args:
        streams: Pairs of a pipe's reading end and its file.
    """

    def __init__(self, streams: Collection[tuple[int, int]]) -> None:
        self._files = dict(streams)
        for pipe in self._files:
            os.set_blocking(pipe, False)

    def move(self, until_one_ends: Collection[Member]) -> None:
        """Move what comes, until it is time to look at the processes again."""
        deadline = time.monotonic() + _LOOK_AGAIN
        with _handles(until_one_ends) as handles:
            poller = select.poll()
            for descriptor in (*self._files, *handles):
                poller.register(descriptor, select.POLLIN)
            while (left := deadline - time.monotonic()) > 0:
                ready = {descriptor for descriptor, _ in poller.poll(left * 1000)}
                for pipe in ready - handles:
                    if self._move_some(pipe) == 0:
                        poller.unregister(pipe)
                if ready & handles:
                    break

    def finish(self) -> None:
        """Move what is there, without waiting for more."""
        for pipe in list(self._files):
            moved = 0
            # Who has opted out of being ended may go on writing for ever.
            while moved < PIPE_BYTES and (count := self._move_some(pipe)):
                moved += count

    def _move_some(self, pipe: int) -> int | None:
        """Move some bytes and give their number; ``None``: there are none at the moment, 0: there will be no more."""
        try:
            chunk = os.read(pipe, CHUNK_BYTES)
        except BlockingIOError:
            return None
        if not chunk:
            os.close(pipe)
            del self._files[pipe]
            return 0
        with contextlib.suppress(OSError):  # a full disk must not keep the ranks from ending
            # Not by O_APPEND: the supervisor writes at places of its own choice, and the file is open once.
            os.lseek(self._files[pipe], 0, os.SEEK_END)
            rest = memoryview(chunk)
            while rest:
                rest = rest[os.write(self._files[pipe], rest) :]
        return len(chunk)


@contextlib.contextmanager
def _handles(members: Collection[Member]) -> Iterator[set[int]]:
    handles: set[int] = set()
    try:
        for member in members:
            with contextlib.suppress(ProcessLookupError):
                handle = open_handle(member.pid)
                if handle is not None:
                    handles.add(handle)
        yield handles
    finally:
        for handle in handles:
            os.close(handle)


def _raise_descriptor_limit() -> None:
    """Have as many descriptors as possible: a handle is needed for each process."""
    import resource  # noqa: PLC0415 - needed once, and only now

    with contextlib.suppress(ValueError, OSError):
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
