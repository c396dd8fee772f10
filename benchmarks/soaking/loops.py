"""The event loops that a round can be run on."""

import asyncio
import contextlib
from collections.abc import Callable


def loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Give the event loops that there are."""
    found: dict[str, Callable[[], asyncio.AbstractEventLoop]] = {"asyncio": asyncio.new_event_loop}
    with contextlib.suppress(ImportError):
        import uvloop  # noqa: PLC0415 - where it is installed

        found["uvloop"] = uvloop.new_event_loop
    return found
