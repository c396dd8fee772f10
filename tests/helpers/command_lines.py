"""``aioelastic run`` as a person runs it: on pipes, or under a terminal at which a test types."""

import os
import pty
import signal
import subprocess
import sys
import termios
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, Self

from tests.helpers.drivers import ROOT
from tests.helpers.supervisors import wait_until
from tests.helpers.survivors import MARK, Doomed
from tests.helpers.terminals import TerminalModel

SHELLS: Final = ("--no-python", "--nproc-per-node", 2)
"""Options for two ranks that are no Python."""

_NOT_OURS: Final = ("AIOELASTIC_", "MASTER_", "NO_COLOR", "OMP_", "PET_", "PYTHONUNBUFFERED", "SLURM_", "TORCH")
"""How variables begin that would have the command do something else."""


def run_command(*words: object) -> list[str]:
    """Give the command ``aioelastic run`` with some words behind it."""
    return [sys.executable, "-W", "error", "-m", "aioelastic", "run", *map(str, words)]


def surroundings(**variables: object) -> dict[str, str]:
    """Give the variables of a person who has set none that mean something to us, but for the given ones."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(_NOT_OURS)}
    ours = {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT), "TERM": "xterm"}
    return {**inherited, **ours, **{name: str(value) for name, value in variables.items()}}


def run(*words: object, **options: Any) -> "subprocess.CompletedProcess[Any]":
    """Run ``aioelastic run`` on pipes to its end.

    Args:
        words: What follows on the command line.
        options: Those of `subprocess.run`.
    """
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options = {"env": surroundings(), "text": True, **pipes, **options}
    return subprocess.run(run_command(*words), check=False, timeout=60, **options)


@contextmanager
def begun(*words: object, **options: Any) -> Iterator[Doomed]:
    """Run ``aioelastic run`` on pipes; whatever is left of it in the end is killed.

    Args:
        words: What follows on the command line.
        options: Those of `subprocess.Popen`.
    """
    mark = uuid.uuid4().hex
    pipes = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    options = {"env": surroundings(), **pipes, **options}
    options["env"] = {**options["env"], MARK: mark}
    with subprocess.Popen(run_command(*words), **options) as process:
        launcher = Doomed(process, mark)
        try:
            yield launcher
        finally:
            process.kill()
            kill_all(launcher.survivors)


def kill_all(pids: Sequence[int]) -> None:
    """Kill what may be left of a launcher."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


class Terminal:
    """A program under a terminal of its own, at which a test types; to be used in ``with``.

    Args:
        command: The program.
        env: Its variables.
        columns: How wide the window is.
        options: Those of `subprocess.Popen`.
    """

    def __init__(self, command: Sequence[str], env: Mapping[str, str], *, columns: int = 100, **options: Any) -> None:
        self._ours, theirs = pty.openpty()
        self._columns = columns
        self._output = b""
        termios.tcsetwinsize(theirs, (24, columns))
        # The first terminal that the leader of a session opens is its own: it is sent what is typed as signals.
        own = 'exec "$@" 0<>"$(tty)"'
        mark = uuid.uuid4().hex
        self.process: subprocess.Popen[bytes] = subprocess.Popen(
            ["/bin/sh", "-c", own, "sh", *command],
            env={**env, MARK: mark},
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            start_new_session=True,
            **options,
        )
        os.close(theirs)
        os.set_blocking(self._ours, False)
        self.family = Doomed(self.process, mark)

    @property
    def shown(self) -> str:
        """All that the terminal has got."""
        with suppress(OSError):  # nothing yet, or never again
            while self._ours >= 0 and (data := os.read(self._ours, 10_000)):
                self._output += data
        return self._output.decode("utf-8", "replace")

    @property
    def rows(self) -> list[str]:
        """What a person sees, the rows that have scrolled away too."""
        return TerminalModel(self._columns).feed(self.shown.encode()).rows

    def until(self, *signs: str) -> None:
        """Wait until some texts are shown."""

        def is_over() -> bool:
            ended = self.process.poll() is not None
            return all(sign in self.shown for sign in signs) or ended

        wait_until(is_over, f"{signs} on the terminal")
        assert all(sign in self.shown for sign in signs), self.shown

    def type(self, keys: bytes) -> None:
        """Type something."""
        os.write(self._ours, keys)

    def hang_up(self) -> None:
        """Close the terminal's window."""
        os.close(self._ours)
        self._ours = -1

    def status(self) -> int:
        """Read until the program ends, and give its exit status."""
        wait_until(lambda: (self.process.poll() is not None, self.shown)[0], "the end")
        return self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.wait()
        kill_all(self.family.survivors)
        if self._ours >= 0:
            os.close(self._ours)
