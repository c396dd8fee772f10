"""Taking stock: what a program holds, and which processes descend from it."""

import os
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from soaking.journal import start_time


@dataclass(frozen=True)
class Stock:
    """What this program holds at one moment; its standard streams are left out."""

    processes: frozenset[int]
    descriptors: dict[int, str]
    threads: frozenset[threading.Thread]

    @classmethod
    def take(cls) -> "Stock":
        """Look at everything."""
        return cls(frozenset(descendants(os.getpid())), _descriptors(), frozenset(threading.enumerate()))

    def leaks(self) -> list[str]:
        """Say what is there now and was not there then."""
        now = Stock.take()
        opened = {number: what for number, what in now.descriptors.items() if self.descriptors.get(number) != what}
        return [
            *(f"process {described(pid)}" for pid in now.processes - self.processes),
            *(f"descriptor {number} -> {what}" for number, what in opened.items()),
            *(f"descriptor {number} was closed" for number in self.descriptors.keys() - now.descriptors.keys()),
            *(f"thread {thread.name}" for thread in now.threads - self.threads),
        ]


def descendants(pid: int) -> Iterator[int]:
    """Give the pids of a process's children and of theirs, zombies included."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def children(pid: int) -> list[int]:
    """Give the pids of a process's children, zombies included."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += map(int, task.read_text().split())
        except OSError:
            continue
    return found


def described(pid: int) -> str:
    """Tell about a process."""
    try:
        about = Path(f"/proc/{pid}")
        words = about.joinpath("cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")[:150]
        state = about.joinpath("stat").read_text().rpartition(")")[2].split()
        return f"{pid} (state {state[0]}, parent {state[1]}, session {state[3]}: {words or 'no command line'})"
    except OSError:
        return f"{pid} (gone meanwhile)"


def is_alive(pid: int, start: int) -> bool:
    """Tell whether a process is there and no zombie, and still the one that started at that time."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX" and start_time(pid) == start


def _descriptors() -> dict[int, str]:
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        try:
            # uvloop makes its pair of sockets for signals anew in each run: same numbers, other inodes.
            what = str(entry.readlink()).partition("socket:[")[0] or "a socket"
        except OSError:  # the one that listed the folder
            continue
        if int(entry.name) > 2:
            found[int(entry.name)] = what
    return found
