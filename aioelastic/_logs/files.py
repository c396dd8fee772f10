"""Opening the files that get a rank's output."""

import contextlib
import fcntl
import os

from aioelastic._base.paths import absolute_path
from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError


def checked_log_path(argument: str, path: object) -> str:
    """Give the path of a file for a rank's output as text, absolute: the rank may have another directory.

    Args:
        argument: What the errors call it.
        path: The path; ``""`` for none stays that.

    Raises:
        SpecificationTypeError: It is no text and no path of text.
        SpecificationError: It has a NUL, or cannot be encoded.
        OSError: It is relative, and the working directory is gone.
    """
    text = os.fspath(path) if isinstance(path, os.PathLike) else path
    if not isinstance(text, str):
        raise SpecificationTypeError(f"{argument} must be a str or a path of text, not {type(path).__name__}")
    try:
        is_path = b"\0" not in os.fsencode(text)
    except UnicodeEncodeError:
        is_path = False
    if not is_path:
        raise SpecificationError(f"{argument} has a NUL, or a character that no path can have")
    return text if not text or text.startswith("/") else absolute_path(text)


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
