"""Having an event loop do something from outside of it."""

import asyncio
import concurrent.futures
import contextlib
from collections.abc import Awaitable, Callable


def run_on(loop: asyncio.AbstractEventLoop, function: Callable[[], Awaitable[object]], patience: float) -> None:
    """Run an asynchronous function to its end on a loop that runs in another thread, or is there and does not run.

    It does nothing if there is no way: the loop is closed, or this thread is within a loop itself.

    Args:
        loop: The event loop.
        function: What to run there.
        patience: Seconds after which it is given up: a loop that hangs must not hold the tests up.
    """
    if loop.is_closed():
        return
    if loop.is_running():
        if loop is not _loop_here():
            future = asyncio.run_coroutine_threadsafe(_limited(function, patience), loop)
            with contextlib.suppress(concurrent.futures.CancelledError, TimeoutError):
                future.result(patience)
    elif _loop_here() is None:
        # RuntimeError: something else in the loop has stopped it.
        with contextlib.suppress(asyncio.CancelledError, RuntimeError, TimeoutError):
            loop.run_until_complete(_limited(function, patience))


async def _limited(function: Callable[[], Awaitable[object]], seconds: float) -> None:
    async with asyncio.timeout(seconds):
        await function()


def _loop_here() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
