"""Opening the files that get a rank's output."""

import os


def open_log(path: str) -> int:
    """Open a file for appending, made when missing; what it holds is never emptied, and a symlink never followed.

    It can also be read (a copy that fell behind reads what it missed). It may block, as every open may.

    Raises:
        OSError: It cannot be opened; ``ELOOP`` for a symlink.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY
    return os.open(path, flags, 0o644)
