"""Arguments and variables of unusual kinds, and how long they may be."""

import resource
from enum import Enum, IntEnum
from typing import Final

from hypothesis import strategies as st

from aioelastic._base.defaults import MAX_ARG_STRLEN

LIMIT: Final = max(MAX_ARG_STRLEN, 32 * resource.getpagesize())
"""The bytes that an argument or a variable takes at the most, with the NUL behind it."""

SECRET: Final = "hunter2"
"""What no message may tell."""

PASSABLE: Final = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
"""Text that a process can be given."""


class Place:
    """A path of bytes."""

    def __fspath__(self) -> bytes:
        """Give bytes that are no UTF-8."""
        return b"/tmp/\xff"


class Word(str, Enum):  # noqa: UP042 - a StrEnum prints as what it is
    """Text that prints as something else."""

    GO = "go"


class Number(IntEnum):
    """A number with a name."""

    TWO = 2
