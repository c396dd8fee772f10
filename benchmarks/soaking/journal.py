"""What a rank says of itself while it runs: numbers in a shared file, which stay when it is killed.

Each rank loads this, so it loads next to nothing itself; `soaking.entries` reads journals.
"""

import mmap
import os

STARTED, READY, ENDING = 1, 2, 3
"""Phases: its program runs; it has done what it does before it talks; it does its last act."""

SLOTS = 8
PID, START, BEGUN, DONE, PHASE, BROKEN = 0, 1, 2, 4, 6, 7
"""The numbers, each of eight bytes; of begun and done records there is one per stream."""


class Journal:
    """A rank's journal, for the rank to write."""

    def __init__(self, path: str) -> None:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        os.ftruncate(descriptor, 8 * SLOTS)
        self._memory = mmap.mmap(descriptor, 8 * SLOTS)
        os.close(descriptor)
        self._slots = memoryview(self._memory).cast("Q")
        self._slots[PID] = os.getpid()
        self._slots[START] = start_time(os.getpid())
        self.enter(STARTED)

    def enter(self, phase: int) -> None:
        """Note the phase."""
        self._slots[PHASE] = phase

    def begin(self, stream: int, number: int) -> None:
        """Note that a record is going to be written."""
        self._slots[BEGUN + stream] = number + 1

    def finish(self, stream: int, number: int) -> None:
        """Note that it is written."""
        self._slots[DONE + stream] = number + 1

    def give_up(self, stream: int) -> None:
        """Note that the system refuses what is written to a stream."""
        self._slots[BROKEN] |= 1 << stream


def start_time(pid: int) -> int:
    """Tell when a process started, in ticks: with its pid that names it for ever; 0 if there is none."""
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return 0
    try:
        return int(os.read(descriptor, 4096).rpartition(b")")[2].split()[19])
    except ProcessLookupError:
        return 0
    finally:
        os.close(descriptor)
