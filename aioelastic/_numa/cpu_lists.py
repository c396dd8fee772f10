"""Sets of CPUs as the kernel writes them (pure)."""

import re
from collections.abc import Iterable
from itertools import groupby
from typing import Final

_PART: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?", re.ASCII)

_MOST: Final = 1 << 20
"""CPUs that a list may hold: a hundred times what kernels are built for (NR_CPUS), and no danger to memory."""


def parse_cpu_list(text: str) -> frozenset[int]:
    """Read a list of CPUs or nodes, such as ``0-3,8``.

    The form is what the kernel prints with ``%*pbl``: numbers and ranges joined by commas, an empty line for none
    (Documentation/admin-guide/cputopology.rst, and "cpulists" in Documentation/admin-guide/kernel-parameters.rst).

    Args:
        text: The list; white space around it and around its parts does not matter.

    Returns:
        The numbers.

    Raises:
        ValueError: It is no such list.

    Example:
        >>> sorted(parse_cpu_list("0-2,8"))
        [0, 1, 2, 8]
    """
    numbers: set[int] = set()
    for part in filter(None, map(str.strip, text.split(","))):
        match = _PART.fullmatch(part)
        if match is None:
            raise ValueError(f"no list of CPUs: {text[:100]!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        if first > last or last >= _MOST:
            raise ValueError(f"no range of CPUs: {part!r}")
        numbers.update(range(first, last + 1))
    return frozenset(numbers)


def format_cpu_list(numbers: Iterable[int]) -> str:
    """Write numbers as the kernel does.

    Args:
        numbers: CPUs or nodes, in any order.

    Returns:
        The list, or ``"none"`` for no numbers, as it is meant for people.

    Example:
        >>> format_cpu_list({8, 0, 1, 2})
        '0-2,8'
    """
    runs = []
    for _, pairs in groupby(enumerate(sorted(set(numbers))), key=lambda pair: pair[1] - pair[0]):
        run = [number for _, number in pairs]
        runs.append(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}")
    return ",".join(runs) or "none"
