"""Opening the files that get a rank's output."""

import contextlib
import fcntl
import os


def open_log(path: str) -> int:
    """Open a file for appending, made when missing; what it holds is never emptied, and a symlink never followed.

    It can also be read (a copy that fell behind reads what it missed). It may block, as every open may.

    Raises:
        OSError: It cannot be opened; ``ELOOP`` for a symlink.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
    return os.open(path, flags, 0o644)


def stop_appending(descriptor: int) -> None:
    """Have a file that only we have open written where each write says, not at its end."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    with contextlib.suppress(PermissionError):  # chattr +a: it takes nothing but appending
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags & ~os.O_APPEND)


def keep_appending(descriptor: int) -> None:
    """Have what is written go to the file's end, whatever the descriptor's position."""
    flags = fcntl.fcntl(descriptor, fcntl.F_GETFL)
    fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | os.O_APPEND)
