"""Starting a command with no blocked signal and default dispositions, whatever the supervisor's are."""

import errno
import os
import signal
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

import anyio

from aioelastic._base.defaults import EXEC_TIMEOUT
from aioelastic._base.signals import INHERITED_IGNORED, ignored_signals

_STEP = __file__.removesuffix("_processes/signal_state.py") + "_child/exec_step.py"


class ExecStep(NamedTuple):
    """A command wrapped in the exec step, and the pipes between the step and us.

    Attributes:
        command: The step's own command.
        report: Reading end of the pipe by which the step reports a failed exec.
        release: Writing end of the pipe on whose word the step waits, or ``None`` where it does not.
        handed: The other ends, which the step gets.
    """

    command: tuple[str, ...]
    report: int
    release: int | None
    handed: tuple[int, ...]


async def exec_outcome(report: int) -> None:
    """Wait until the step has become the command.

    Args:
        report: The reading end of its pipe; the caller has closed the other end.

    Raises:
        OSError: The exec failed, with its errno; or the step is stuck.
    """
    try:
        with anyio.fail_after(EXEC_TIMEOUT):
            await anyio.wait_readable(report)
    except TimeoutError:
        raise OSError(errno.ETIMEDOUT, f"the command did not begin within {EXEC_TIMEOUT:.0f} s") from None
    number = os.read(report, 16)
    if number:
        raise OSError(int(number), os.strerror(int(number)))


def needs_exec_step() -> bool:
    """Tell whether a command started from this thread would inherit a signal state that it should not start with.

    An exec resets handled signals by itself; blocked ones and ignored ones stay.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    return bool(sys.executable) and bool(blocked or not ignored_signals() <= INHERITED_IGNORED)


def exec_step(
    command: tuple[str, ...], env: Mapping[str, str], ours: ExitStack, theirs: ExitStack, *, waits: bool
) -> ExecStep:
    """Wrap a command, so that it starts with the signal state it should.

    Args:
        command: Program and arguments.
        env: The whole environment.
        ours: Closes our ends of the pipes.
        theirs: Closes the step's ends here, after the start.
        waits: Whether it is to wait for `ExecStep.release`.

    Raises:
        OSError: There are no descriptors left.
    """
    report, status = _pipe(ours, theirs)
    go, release = _pipe(theirs, ours) if waits else (None, None)
    ignored = ",".join(map(str, sorted(INHERITED_IGNORED)))
    dropped = "" if "LC_CTYPE" in env else "LC_CTYPE"
    words = (str(status), "" if go is None else str(go), ignored, dropped)
    handed = (status,) if go is None else (status, go)
    return ExecStep((sys.executable, "-I", "-S", _STEP, *words, *command), report, release, handed)


def _pipe(reader: ExitStack, writer: ExitStack) -> tuple[int, int]:
    reading, writing = os.pipe()
    reader.callback(os.close, reading)
    writer.callback(os.close, writing)
    return reading, writing
