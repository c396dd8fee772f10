"""Taking stock of what a program holds: child processes, descriptors, threads, tasks."""

import asyncio
import contextlib
import os
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

PATIENCE = 3.0
"""Seconds in which what is on its way out must be gone (a watcher thread of asyncio 3.11, a zombie)."""


@dataclass(frozen=True)
class Snapshot:
    """What this program holds at one moment."""

    processes: frozenset[int]
    descriptors: dict[int, str]
    threads: frozenset[threading.Thread]
    tasks: frozenset["asyncio.Task[object]"]

    @classmethod
    def take(cls) -> "Snapshot":
        """Look at everything; tasks only within a running loop."""
        try:
            tasks = frozenset(asyncio.all_tasks())
        except RuntimeError:
            tasks = frozenset()
        return cls(
            processes=frozenset(descendants("self")),
            descriptors=_descriptors(),
            threads=frozenset(threading.enumerate()),
            tasks=tasks,
        )

    def leaks(self) -> list[str]:
        """Say what is there now and was not there then."""
        now = Snapshot.take()
        opened = {number: what for number, what in now.descriptors.items() if self.descriptors.get(number) != what}
        return [
            *(f"process {_described(pid)}" for pid in now.processes - self.processes),
            *(f"descriptor {number} -> {what}" for number, what in opened.items()),
            *(f"descriptor {number} was closed" for number in self.descriptors.keys() - now.descriptors.keys()),
            *(f"thread {thread.name}" for thread in now.threads - self.threads),
            *(f"task {task!r}" for task in now.tasks - self.tasks - _current()),
        ]

    def compare_until_clean(self) -> None:
        """Fail unless everything is as before within a moment."""
        deadline = time.monotonic() + PATIENCE
        while leaks := self.leaks():
            assert time.monotonic() < deadline, f"left behind: {'; '.join(leaks)}"
            time.sleep(0.01)

    async def compare_until_clean_async(self) -> None:
        """Fail unless everything is as before within a moment, letting the loop go on meanwhile."""
        deadline = time.monotonic() + PATIENCE
        while leaks := self.leaks():
            assert time.monotonic() < deadline, f"left behind: {'; '.join(leaks)}"
            await asyncio.sleep(0.01)


def _current() -> frozenset["asyncio.Task[object]"]:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        return frozenset()
    return frozenset() if task is None else frozenset([task])


def descendants(pid: int | str) -> Iterator[int]:
    """Give the pids of a process's children and of theirs, zombies included."""
    # Not psutil's: it reads every process of the machine, twice for each of two thousand tests.
    with contextlib.suppress(OSError):
        for task in os.listdir(f"/proc/{pid}/task"):  # noqa: PTH208 - paths as objects take three times as long
            with contextlib.suppress(OSError):
                for child in map(int, _read(f"/proc/{pid}/task/{task}/children").split()):
                    yield child
                    yield from descendants(child)


def _read(path: str) -> bytes:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        return b"".join(iter(lambda: os.read(descriptor, 65_536), b""))
    finally:
        os.close(descriptor)


def _descriptors() -> dict[int, str]:
    found = {}
    for number in os.listdir("/proc/self/fd"):  # noqa: PTH208 - as above
        try:
            what = os.readlink(f"/proc/self/fd/{number}")  # noqa: PTH115 - as above
            # uvloop makes its pair of sockets for signals anew in each run: same numbers, other inodes.
            found[int(number)] = what.partition("socket:[")[0] or "a socket"
        except OSError:  # the one that listed the folder
            continue
    return found


def _described(pid: int) -> str:
    try:
        return f"{pid} ({Path(f'/proc/{pid}/cmdline').read_bytes()!r})"
    except OSError:
        return str(pid)
