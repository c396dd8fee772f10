"""What anyio is used for: waiting for something bounded that must be over before anybody goes on."""

import asyncio
import contextlib
from collections.abc import Callable
from importlib import import_module
from typing import Any, TypeVar, TypeVarTuple

import anyio

from aioelastic._base.threads import BlockingThreads, in_thread

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_loaded = False


def load_backend() -> None:
    """Import what anyio would import on its first use, 40 ms in the event loop; to be called in a thread before."""
    global _loaded  # noqa: PLW0603 - the module is in sys.modules while it is still being imported
    with contextlib.suppress(ImportError):
        import_module("anyio._backends._asyncio")
    _loaded = True


async def backend_loaded() -> None:
    """Have it imported, in a thread: a group needs it when its ranks end, and not to start them."""
    if not _loaded:
        await in_thread(load_backend)


async def settle(future: "asyncio.Future[Any]") -> None:
    """Wait until a future of ours is done, whatever cancels the caller meanwhile, then let the cancellation through.

    The future must be bounded by its own means: a cancelled caller waits here until it is done. It is not
    cancelled with the caller, and its result or exception is left for whoever wants it.

    Raises:
        asyncio.CancelledError: The caller was cancelled meanwhile (once the future is done).
    """
    cancellation: asyncio.CancelledError | None = None
    with anyio.CancelScope(shield=True):
        while not future.done():
            try:
                # asyncio.wait leaves the future alone when the waiter is cancelled; awaiting it would cancel it.
                await asyncio.wait([future])
            except asyncio.CancelledError as error:
                cancellation = error
    if cancellation is not None:
        raise cancellation


async def settled_in_thread(keep: Callable[[T], object], function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run one blocking call, which opens something, in a thread, and wait for its end whatever cancels the caller.

    No task runs it: the end of the event loop cancels all tasks, and what one of them was about to give would be lost.

    Args:
        keep: Is given the result first, also when the caller was cancelled: so that it can be closed.
        function: What to run; bounded.
        args: Its arguments.

    Raises:
        asyncio.CancelledError: The caller was cancelled meanwhile (once the call has ended).
        BaseException: What the call raises.
    """
    threads = BlockingThreads(f"aioelastic: {function.__name__}", 1, or_inline=True)
    outcome = threads.run(function, *args)
    try:
        await settle(outcome)
    finally:
        if outcome.exception() is None:
            keep(outcome.result())
        await threads.close()
    return outcome.result()
