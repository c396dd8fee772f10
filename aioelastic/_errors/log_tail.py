"""The end of a rank's log as a text that can stand in a message."""

import os
import re
import stat

from aioelastic._errors.error_files import read_regular

TAIL_BYTES = 4 * 1024
"""Bytes read from the end of a log."""

TAIL_LINES = 20
"""Lines shown from the end of a log; a traceback of an ordinary depth."""

_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b\n]*(?:\x07|\x1b\\)|[ -/]*[0-~]?)")
"""Escape sequences of a terminal (ECMA-48): CSI, OSC that ends, and the short ones."""

_CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
"""Control characters other than tab and newline."""


def printable(text: str) -> str:
    r"""Take out what would act on a terminal or could not be printed at all.

    Escape sequences and control characters go; of a line rewritten with ``\r`` the last state stays; lone
    surrogates become ``\udcxx``.

    Args:
        text: Any text.

    Returns:
        The text with nothing but characters, tabs and newlines.

    Example:
        >>> printable("10%\r99%\x1b[31m!\x1b[0m")
        '99%!'
    """
    plain = _ESCAPES.sub("", text)
    lines = (line.rstrip("\r").rpartition("\r")[2] for line in plain.split("\n"))
    return _CONTROLS.sub("", "\n".join(lines)).encode("utf-8", "backslashreplace").decode("utf-8")


def log_tail(path: str) -> str:
    """Read the last lines of a log.

    Never raises: a log that vanished, or is no file, has no lines.

    Args:
        path: The log; ``""`` for a stream that went to the console.

    Returns:
        At most `TAIL_LINES` lines from its last `TAIL_BYTES` bytes, fit to be printed; ``""`` when there
        is nothing.

    Example:
        >>> log_tail("/no/such/stderr.log")
        ''
    """
    try:
        # One byte more, to know whether a line begins with the rest.
        content = read_regular(path, TAIL_BYTES + 1, from_end=True) if path else b""
    except (OSError, ValueError):
        return ""
    if len(content) > TAIL_BYTES:
        content = _from_line_start(content)
    lines = printable(content.decode("utf-8", "replace")).rstrip().split("\n")
    return "\n".join(lines[-TAIL_LINES:]).strip("\n")


def _from_line_start(content: bytes) -> bytes:
    """Drop the cut line a tail begins with; a single huge line stays, without the rest of a cut character."""
    _, _, rest = content.partition(b"\n")
    if rest.strip():
        return rest
    return content[:3].lstrip(bytes(range(0x80, 0xC0))) + content[3:]


def is_empty_log(path: str) -> bool:
    """Tell whether a log is there, and nothing in it."""
    try:
        about = os.stat(path)  # noqa: PTH116 - any text may come as a path
    except (OSError, ValueError):
        return False
    return stat.S_ISREG(about.st_mode) and about.st_size == 0
