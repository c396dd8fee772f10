"""Having an event loop do something from outside of it."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

_PATIENCE: Final = 60.0
"""Seconds for what has a limit of its own, as the end of a group has: a loop that hangs must not hold the tests up."""


def run_on(loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[object]]) -> None:
    """Run an asynchronous function to its end on a loop that runs in another thread, or is there and does not run.

    It does nothing if there is no way: the loop is closed, or this thread is within a loop itself.
    """
    if loop.is_closed():
        return
    if loop.is_running():
        if loop is not _loop_here():
            future = asyncio.run_coroutine_threadsafe(_limited(function), loop)
            with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError):
                future.result(_PATIENCE)
    elif _loop_here() is None:
        # RuntimeError: something else in the loop has stopped it.
        with contextlib.suppress(asyncio.CancelledError, RuntimeError, TimeoutError):
            loop.run_until_complete(_limited(function))


async def _limited(function: Callable[[], Awaitable[object]]) -> None:
    async with asyncio.timeout(_PATIENCE):
        await function()


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
