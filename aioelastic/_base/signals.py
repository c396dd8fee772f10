"""Signals by name, and the ones this program was started with as ignored (``nohup``)."""

import signal
from typing import Final


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
        int(number)
        for number in signal.valid_signals()
        if number not in python_ignores and signal.getsignal(number) is signal.SIG_IGN
    )


INHERITED_IGNORED: Final = ignored_signals()
"""The signals ignored when this library was imported.

The kernel keeps no record of what a program was started with, so the import, which comes before the program's own
handlers in practice, is the nearest moment at which an inherited ``SIG_IGN`` can be told from one the program set.
"""
