"""Small files of /sys and /proc, any of which may be missing, unreadable or strange."""

import os
import re
from collections.abc import Iterator
from typing import Final, TypeAlias

from aioelastic._numa.cpu_lists import parse_cpu_list

Place: TypeAlias = str | os.PathLike[str]

_MOST_BYTES: Final = 1 << 16
"""More than any of these files has; the largest are lists of CPUs."""


def read_text(path: Place) -> str | None:
    """Give a file's text without white space around it, or ``None`` when it cannot be read."""
    # Thousands of files on a large machine: pathlib would take four times as long. A FIFO must not block.
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        try:
            return os.read(descriptor, _MOST_BYTES).decode(errors="replace").strip()
        finally:
            os.close(descriptor)
    except OSError:
        return None


def read_number(path: Place, base: int = 10) -> int | None:
    """Give the number in a file, or ``None`` when there is none."""
    try:
        return int(read_text(path) or "", base)
    except ValueError:
        return None


def read_cpu_list(path: Place) -> frozenset[int] | None:
    """Give the list of CPUs or nodes in a file, or ``None`` when there is none."""
    text = read_text(path)
    try:
        return None if text is None else parse_cpu_list(text)
    except ValueError:
        return None


def numbered_entries(directory: Place, stem: str) -> Iterator[int]:
    """Give the numbers of the entries called ``<stem><number>``, ascending; none when it cannot be listed."""
    pattern = re.compile(rf"{stem}(0|[1-9][0-9]{{0,8}})", re.ASCII)
    try:
        with os.scandir(directory) as entries:
            matches = [pattern.fullmatch(entry.name) for entry in entries]
    except OSError:
        return
    yield from sorted(int(match[1]) for match in matches if match)
