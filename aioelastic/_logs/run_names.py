"""How a run is called: the name of its directory."""

import os
import time
from typing import Final

from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError

_NAME_BYTES: Final = 200
"""Bytes a run's name may have: file systems take 255, and a sibling's number has to fit behind it."""


def fresh_run_id() -> str:
    """Make a name that no other run has, and that a person can read the time from.

    Returns:
        Such as ``run-20260131-235959-3f9a01``.
    """
    return time.strftime("run-%Y%m%d-%H%M%S-") + os.urandom(3).hex()


def checked_run_id(argument: str, name: object) -> str:
    """Give a run's name if a directory can be called so.

    Raises:
        SpecificationTypeError: It is no text.
        SpecificationError: It cannot be a directory's name, or is too long for one.
    """
    if not isinstance(name, str):
        raise SpecificationTypeError(f"{argument} must be a str, not {type(name).__name__}")
    if name in {"", os.curdir, os.pardir} or "/" in name or "\0" in name or not is_short(name):
        raise SpecificationError(
            f"{argument} names a directory, and {shortened(name)} cannot: give 1 to "
            f"{_NAME_BYTES} bytes without '/' and NUL, and neither '.' nor '..'"
        )
    return name


def is_short(name: str) -> bool:
    """Tell whether a file system takes a name, with something behind it."""
    try:
        return len(os.fsencode(name)) <= _NAME_BYTES
    except UnicodeEncodeError:
        return False


def shortened(text: str, limit: int = 80) -> str:
    """Show a text, but not the megabytes it may have."""
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}... ({len(text)} characters)"
