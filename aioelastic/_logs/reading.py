"""What the readers of a group's lines share while there are any: threads, and a watch for files."""

import asyncio
import contextlib
import weakref
from collections.abc import Callable
from typing import Any, Final

from aioelastic._base.threads import BlockingThreads
from aioelastic._logs.file_watch import FileWatch

_THREADS: Final = 4
"""Readers whose files may block at the same time before the others wait for one another."""


class Reading:
    """Belongs to the readers, and ends with the last that holds it: most are dropped, and not told to close.

    Args:
        on_change: Called on the loop with the key of a file that has changed.

    Attributes:
        run: Has a function run in a thread, and gives the future of its result. Nothing is written there: writing must
            not wait for reading.
        watch: What tells of changes that only the kernel knows of, if that is needed.
    """

    def __init__(self, on_change: Callable[[Any], None]) -> None:
        threads = BlockingThreads("aioelastic: log lines", _THREADS)
        self.run = threads.run
        self.watch: FileWatch | None = None
        self._on_change = on_change
        self._end_with_me(threads.let_go)

    def watch_files(self) -> None:
        """Have files watched from now on.

        Raises:
            OSError: The system gives no way to do that.
        """
        if self.watch is None:
            self.watch = FileWatch(self._on_change)
            self._end_with_me(self.watch.close)

    def _end_with_me(self, end: Callable[[], None]) -> None:
        weakref.finalize(self, _end, asyncio.get_running_loop(), end).atexit = False


def _end(loop: asyncio.AbstractEventLoop, end: Callable[[], None]) -> None:
    """End something on the loop's thread: whoever lets go last may be in any, at any moment."""
    with contextlib.suppress(RuntimeError):
        if loop.is_running():
            loop.call_soon_threadsafe(end)
            return
    # The loop stands or is gone, and may never run again; nobody else uses it.
    end()
