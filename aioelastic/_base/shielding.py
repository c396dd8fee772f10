"""What anyio is used for: waiting for something bounded that must be over before anybody goes on."""

import asyncio
import contextlib
from importlib import import_module
from typing import Any

import anyio

from aioelastic._base.threads import in_thread

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
