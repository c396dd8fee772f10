"""Processes by handle (pidfd), so that a number given to a stranger meanwhile is never mistaken for ours.

Where the system has no pidfd (macOS), numbers are checked right before they are used.
"""

import functools
import os
import select
import signal


@functools.cache
def has_handles() -> bool:
    """Tell whether processes can be held by handle here: Linux from 5.3 on, unless a sandbox forbids it."""
    try:
        os.close(os.pidfd_open(os.getpid()))
    except (AttributeError, OSError):
        return False
    return hasattr(signal, "pidfd_send_signal")


def open_handle(pid: int) -> int | None:
    """Open a handle on a process, or give ``None`` where there is none to be had.

    Raises:
        ProcessLookupError: There is no such process.
    """
    if not has_handles():
        return None
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:
        # ENOSYS or EPERM in an old kernel or a strict sandbox; EMFILE when descriptors ran out in the middle.
        return None


def handle_has_exited(handle: int) -> bool:
    """Tell whether a handle's process has ended; a zombie has, whoever is to reap it."""
    poller = select.poll()
    poller.register(handle, select.POLLIN)
    return bool(poller.poll(0))
