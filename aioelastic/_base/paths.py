"""Paths as text: `pathlib` takes 10 ms to import, which every start of a program would pay for."""

import os


def absolute_path(path: str) -> str:
    """Give a path from the root on, without empty parts and ``.``, and with ``..`` as it is.

    `os.path.abspath` drops ``link/..``, which is another directory where ``link`` is a symlink.

    Raises:
        OSError: It is relative, and the working directory is gone.

    Example:
        >>> absolute_path("/var//log/./x/../y/")
        '/var/log/x/../y'
    """
    whole = path if path.startswith("/") else f"{os.getcwd()}/{path}"  # noqa: PTH109 - see above
    return "/" + "/".join(part for part in whole.split("/") if part not in {"", "."})
