"""The program that runs the rounds, held from outside: started, told, watched, and replaced when it has died."""

import json
import os
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from soaking.stock import children, descendants

_BENCHMARKS = Path(__file__).parent.parent
_WARMING = 60.0
"""Seconds for a supervisor to be ready for a round."""


class Supervisor:
    """A supervisor of rounds, started when there is work.

    Args:
        complaints: A file for what it says outside of rounds.
    """

    def __init__(self, complaints: Path) -> None:
        self.complaints = complaints
        self._popen: subprocess.Popen[bytes] | None = None
        self._answers = -1
        self._handle = -1
        self._own: frozenset[int] = frozenset()

    def run(self, order: dict[str, Any], patience: float) -> str:
        """Have it run a round; tell how that ended: ``answered``, ``died`` or ``hung`` (then it is killed)."""
        popen = self._popen or self._start()
        self._tell(popen, json.dumps(order))
        if self._wait(_WARMING) != "answered":
            self.end()
            raise RuntimeError(f"the supervisor does not come up: {self.complaints.read_text()}")
        self._own = frozenset({popen.pid, *descendants(popen.pid)})
        self._tell(popen, "go")
        ending = self._wait(patience)
        if ending != "answered":
            self.end()
        return ending

    def _tell(self, popen: "subprocess.Popen[bytes]", line: str) -> None:
        assert popen.stdin is not None
        popen.stdin.write(line.encode() + b"\n")
        popen.stdin.flush()

    def end(self) -> None:
        """End it."""
        if self._popen is not None:
            self._popen.kill()
            self._popen.communicate()
            os.close(self._handle)
            os.close(self._answers)
            self._popen = None
            self._own = frozenset()

    def strangers(self) -> list[int]:
        """Give what descends from this program and is neither the supervisor nor was there before the round.

        Orphans come to this program, and those that are dead are reaped.
        """
        own = self._popen.pid if self._popen is not None else 0
        found = set()
        for child in children(os.getpid()):
            if child != own and os.waitpid(child, os.WNOHANG)[0]:
                continue
            found |= {child, *descendants(child)}
        return sorted(found - self._own)

    def _start(self) -> "subprocess.Popen[bytes]":
        self._answers, writing = os.pipe()
        path = os.pathsep.join(filter(None, (str(_BENCHMARKS), os.environ.get("PYTHONPATH"))))
        with self.complaints.open("ab") as complaints:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "soaking", str(writing)],
                env={**os.environ, "PYTHONPATH": path},
                stdin=subprocess.PIPE,
                stdout=complaints,
                stderr=complaints,
                pass_fds=[writing],
            )
        os.close(writing)
        self._handle = os.pidfd_open(self._popen.pid)
        return self._popen

    def _wait(self, patience: float) -> str:
        poller = select.poll()
        poller.register(self._answers, select.POLLIN)
        poller.register(self._handle, select.POLLIN)
        ready = {descriptor for descriptor, _ in poller.poll(patience * 1000)}
        if self._answers in ready and os.read(self._answers, 1):
            return "answered"
        return "died" if ready else "hung"


def kill_strangers(supervisor: Supervisor) -> None:
    """Kill what a round has left behind: descendants of this program, and nothing else."""
    deadline = time.monotonic() + 5
    while (strangers := supervisor.strangers()) and time.monotonic() < deadline:
        for pid in strangers:
            _kill(pid)
        time.sleep(0.01)


def _kill(pid: int) -> None:
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        # The handle was opened first: if it still descends from us, it is the one that was meant.
        if pid in descendants(os.getpid()):
            signal_handle(handle)
    finally:
        os.close(handle)


def signal_handle(handle: int) -> None:
    """Kill a process by its handle, if it has not ended."""
    import signal  # noqa: PLC0415 - here alone

    try:
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    except ProcessLookupError:
        return
