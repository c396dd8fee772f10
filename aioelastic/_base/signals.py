"""Signals by name, held back, and the ones this program was started with as ignored (``nohup``)."""

import _signal  # type: ignore[import-not-found]  # see signals_held_back
import contextlib
import signal
from collections.abc import Iterator
from typing import Final

_ALL: Final = frozenset(int(number) for number in signal.valid_signals())

ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)
"""What a program is told to end by: a scheduler or ``kill``, ^C, the end of the terminal, and ^\\, as for torchrun."""

NOT_ENDING: Final = frozenset(
    {signal.SIGSTOP, signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU, signal.SIGCONT, signal.SIGCHLD}
)
"""What ends no program that has not asked for it."""

UNSEEN: Final = frozenset({signal.SIGKILL, signal.SIGSTOP})
"""What the system lets no program see."""

FAULTS: Final = frozenset({signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL})
"""What a program gets for a fault of its own."""


def signal_name(number: int) -> str:
    """Give the name of a signal, ``SIGRTMIN+3`` and unknown numbers included."""
    try:
        return signal.Signals(number).name
    except ValueError:
        pass
    if signal.SIGRTMIN < number < signal.SIGRTMAX:
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"
    return f"signal {number}"


def ignored_signals() -> frozenset[int]:
    """Give the numbers of the signals that this process ignores now, without those that Python itself ignores."""
    python_ignores = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}
    return frozenset(
        number for number in _ALL if number not in python_ignores and signal.getsignal(number) is signal.SIG_IGN
    )


@contextlib.contextmanager
def signals_held_back() -> Iterator[None]:
    """Block all signals in this thread, and so in a process that is started meanwhile until it unblocks them."""
    # By what `signal` is made of: that looks up each number of a mask in an enumeration, twice in every start.
    before = _signal.pthread_sigmask(signal.SIG_BLOCK, _ALL)
    try:
        yield
    finally:
        _signal.pthread_sigmask(signal.SIG_SETMASK, before)


INHERITED_IGNORED: Final = ignored_signals()
"""The signals ignored when this library was imported.

The kernel keeps no record of what a program was started with, so the import, which comes before the program's own
handlers in practice, is the nearest moment at which an inherited ``SIG_IGN`` can be told from one the program set.
"""
