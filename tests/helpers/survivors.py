"""Supervisors that are to be killed, and finding whatever lives on after them."""

import contextlib
import os
import select
import signal
import subprocess
import time
import uuid
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import IO, Final

import psutil

from tests.helpers.drivers import driver_command, driver_environment
from tests.helpers.supervisors import wait_until
from tests.helpers.waiting import PATIENCE, is_alive

MARK: Final = "AIOELASTIC_TEST_MARK"
"""A variable of the supervisor's that all inherit: also who has opted out of the library's own."""

FAMILY: Final = """\
(trap '' TERM; exec sleep 97) &
setsid sleep 98 &
trap '' TERM
echo ready
while :; do sleep 99; done
"""
"""A rank that ignores SIGTERM, with a child that does, and a daemon in a session of its own."""


class Doomed:
    """A supervisor in a process of its own.

    Attributes:
        process: The process.
        mark: By which it and all its descendants are found.
    """

    def __init__(self, process: "subprocess.Popen[bytes]", mark: str) -> None:
        self.process = process
        self.mark = mark

    @property
    def family(self) -> list[int]:
        """The pids of it and of all that it has started and that lives; zombies do not."""
        return [pid for pid in psutil.pids() if self._is_marked(pid)]

    @property
    def survivors(self) -> list[int]:
        """Those without itself."""
        return [pid for pid in self.family if pid != self.process.pid]

    @property
    def guards(self) -> list[int]:
        """The pids of its guards: one, or none."""
        return [pid for pid in self.survivors if "program.main" in command_of(pid)]

    def line(self) -> str:
        """Read a line that it prints, within a time."""
        stdout: IO[bytes] | None = self.process.stdout
        assert stdout is not None
        line = b""
        while not line.endswith(b"\n"):
            assert select.select([stdout], (), (), PATIENCE)[0], f"it has printed nothing more than {line!r}"
            byte = os.read(stdout.fileno(), 1)
            assert byte, f"it has ended after {line!r}"
            line += byte
        return line.decode().rstrip()

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Signal it, and wait for its end."""
        self.process.send_signal(number)
        self.process.wait(20)

    def until_gone(self, *, but: Sequence[int] = ()) -> float:
        """Wait until nothing of it is alive but the given processes; give the seconds that took."""
        began = time.monotonic()
        what = f"the end of {[command_of(pid) for pid in self.family]}"
        # Each look reads something of every process of the machine, and most of this time is the guard's grace.
        wait_until(lambda: set(self.family) <= set(but), what, pause=0.04)
        assert set(self.family) == set(but)
        return time.monotonic() - began

    def _is_marked(self, pid: int) -> bool:
        try:
            return f"{MARK}={self.mark}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False


@contextlib.contextmanager
def doomed(program: str, *arguments: object, loop: str = "asyncio", **options: str) -> Iterator[Doomed]:
    """Run a supervisor (see `driver_command`) that is to be killed; whatever then is left of it is killed, too.

    Args:
        program: Its source.
        arguments: What it finds in ``sys.argv[2:]``.
        loop: The event loop it runs on.
        options: Variables of its environment.
    """
    mark = uuid.uuid4().hex
    command = driver_command(program, loop, *arguments)
    env = {**driver_environment(), **options, MARK: mark}
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as process:
        supervisor = Doomed(process, mark)
        try:
            yield supervisor
        finally:
            process.kill()
            for pid in supervisor.survivors:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def command_of(pid: int) -> str:
    """Give a process's command line, or ``""``; one that has just executed its program has none for a moment."""
    deadline = time.monotonic() + 1
    while True:
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
        except OSError:
            return ""
        if words or not is_alive(pid) or time.monotonic() >= deadline:
            return words.replace(b"\0", b" ").decode("utf-8", "replace")
