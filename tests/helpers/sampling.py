"""Running some of many cases that differ in what matters little: the next Python runs the next ones."""

import sys
import zlib
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

EVERY_CASE = False
"""Whether the option ``--every-case`` was given."""


def sample(cases: Sequence[T], share: int, name: str = "") -> list[T]:
    """Give one of so many cases, or all of them if all are asked for.

    Args:
        cases: At least one.
        share: Every how many.
        name: Of what is sampled: by that, too, it is decided with which one it begins.
    """
    share = min(share, len(cases))
    return list(
        cases if EVERY_CASE else cases[(zlib.crc32(name.encode()) + sys.version_info.minor // 2) % share :: share]
    )
