"""The ledger of a group: what the guard has to know of it when the supervisor is gone.

A nameless file in memory, written by the supervisor a line at a time and read by the guard only then. So keeping it
costs the supervisor a system call per event, never waits for the guard, and a guard that takes over needs no history.

``group death_signal grace sweeps``  how the group is to be ended
``starting rank``                    from here on there may be such a process
``started rank pid``                 its process
``ended rank``                       its leader is gone, and its number may be given to a stranger
"""

import os
from collections.abc import Iterator
from typing import NamedTuple


class Terms(NamedTuple):
    """How a group is to be ended."""

    death_signal: int
    """What its ranks get first."""

    grace: float
    """Seconds from there to SIGKILL."""

    sweeps: bool
    """Whether what has left the ranks' sessions is to be ended, too."""


class Entries(NamedTuple):
    """What a ledger says."""

    terms: Terms
    """How the group is to be ended."""

    leaders: dict[int, bool]
    """Pid of a started rank -> whether that process has ended."""

    starting: frozenset[int]
    """Ranks that were being started when the supervisor ended."""


def open_ledger(terms: Terms) -> int:
    """Open a ledger and give its descriptor."""
    ledger = _nameless_file()
    os.write(ledger, f"group {terms.death_signal} {terms.grace} {int(terms.sweeps)}\n".encode())
    return ledger


def note_starting(ledger: int, rank: int) -> None:
    """Note that a rank is about to be started."""
    os.write(ledger, f"starting {rank}\n".encode())


def note_started(ledger: int, rank: int, pid: int) -> None:
    """Note the process of a rank."""
    os.write(ledger, f"started {rank} {pid}\n".encode())


def note_ended(ledger: int, rank: int) -> None:
    """Note that the process of a rank has ended."""
    os.write(ledger, f"ended {rank}\n".encode())


def read_ledger(ledger: int) -> Entries:
    """Read what a ledger says."""
    terms = Terms(0, 0.0, sweeps=False)
    pids: dict[str, int] = {}
    leaders: dict[int, bool] = {}
    starting: set[int] = set()
    for word, *values in _lines(ledger):
        if word == "group":
            terms = Terms(int(values[0]), float(values[1]), sweeps=values[2] == "1")
        elif word == "starting":
            starting.add(int(values[0]))
        elif word == "started":
            starting.discard(int(values[0]))
            pids[values[0]] = pid = int(values[1])
            leaders[pid] = False
        elif word == "ended" and values[0] in pids:
            leaders[pids[values[0]]] = True
    return Entries(terms, leaders, frozenset(starting))


def _lines(ledger: int) -> Iterator[list[str]]:
    content = os.pread(ledger, os.fstat(ledger).st_size, 0).decode()
    return (line.split() for line in content.splitlines())


def _nameless_file() -> int:
    try:
        return os.memfd_create("aioelastic ledger")
    except (AttributeError, OSError):
        import tempfile  # noqa: PLC0415 - large, and the guard itself has no use for it

        with tempfile.TemporaryFile(buffering=0) as file:
            return os.dup(file.fileno())
