"""The exit of one child, seen through its handle as soon as the kernel tells of it."""

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Protocol

from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._base.threads import BlockingThreads
from aioelastic._processes.exit_status import reap
from aioelastic._processes.process_handles import handle_has_exited, has_handles
from aioelastic._processes.rank_process import ExitStatus


class ExitWatch(Protocol):
    """Watches a child of this program, and reaps it."""

    @property
    def status(self) -> ExitStatus | None:
        """How it ended, or ``None`` while the loop has not seen that."""
        ...

    def has_exited(self) -> bool:
        """Ask whether it has ended."""
        ...

    async def wait_status(self) -> ExitStatus:
        """Wait for its end; any number of tasks may."""
        ...

    def send_signal(self, number: int) -> None:
        """Signal the process itself.

        Raises:
            ProcessLookupError: It has ended.
        """
        ...


def watch_exit(pid: int, on_reaped: Callable[[ExitStatus], None], on_exit: Callable[[], None] | None) -> ExitWatch:
    """Watch a child by its handle; by a thread that waits for it where there are no handles.

    Args:
        pid: Its process id; nobody has reaped it yet.
        on_reaped: Told of the status at once, for who else keeps one.
        on_exit: Called on the loop right after.

    Raises:
        OSError: No descriptor is left for the handle.
    """
    return _HandleWatch(pid, on_reaped, on_exit) if has_handles() else _ThreadWatch(pid, on_reaped, on_exit)


class _HandleWatch:
    """Watches a child by its handle (`ExitWatch`).

    Args:
        pid: Its process id; nobody has reaped it yet.
        on_reaped: Told of the status at once, for who else keeps one.
        on_exit: Called on the loop right after.

    Raises:
        OSError: No descriptor is left for the handle.
    """

    def __init__(self, pid: int, on_reaped: Callable[[ExitStatus], None], on_exit: Callable[[], None] | None) -> None:
        self._loop = asyncio.get_running_loop()
        self._pid = pid
        self._on_reaped = on_reaped
        self._on_exit = on_exit
        self._status: ExitStatus | None = None
        # Not a future in `asyncio.wait`: that would wake those who wait a turn of the loop later.
        self._ended = asyncio.Event()
        self._handle = keep_private(os.pidfd_open(pid))
        self._loop.add_reader(self._handle, self._see_exit)

    @property
    def status(self) -> ExitStatus | None:
        """How it ended, or ``None`` while the loop has not seen that."""
        return self._status

    def has_exited(self) -> bool:
        """Ask the kernel whether it has ended."""
        return self._status is not None or handle_has_exited(self._handle)

    async def wait_status(self) -> ExitStatus:
        """Wait for its end; any number of tasks may."""
        while self._status is None:
            await self._ended.wait()
        return self._status

    def send_signal(self, number: int) -> None:
        """Signal the process itself.

        Raises:
            ProcessLookupError: It has ended.
        """
        if self._status is not None:
            raise ProcessLookupError(self._pid)
        signal.pidfd_send_signal(self._handle, number)

    def _see_exit(self) -> None:
        self._loop.remove_reader(self._handle)
        self._status = reap(self._pid, self._handle)
        close_private(self._handle)
        self._on_reaped(self._status)
        self._ended.set()
        if self._on_exit is not None:
            self._on_exit()


class _ThreadWatch:
    """Watches a child by a thread of its own (`ExitWatch`)."""

    def __init__(self, pid: int, on_reaped: Callable[[ExitStatus], None], on_exit: Callable[[], None] | None) -> None:
        self._pid = pid
        self._on_reaped = on_reaped
        self._on_exit = on_exit
        self._ended = asyncio.ensure_future(self._reap())

    @property
    def status(self) -> ExitStatus | None:
        """How it ended, or ``None`` while the loop has not seen that."""
        return self._ended.result() if self._ended.done() else None

    def has_exited(self) -> bool:
        """Tell whether the loop has seen its end."""
        return self._ended.done()

    async def wait_status(self) -> ExitStatus:
        """Wait for its end."""
        await asyncio.wait([self._ended])
        return self._ended.result()

    def send_signal(self, number: int) -> None:
        """Signal the process itself."""
        if self._ended.done():
            raise ProcessLookupError(self._pid)
        os.kill(self._pid, number)

    async def _reap(self) -> ExitStatus:
        threads = BlockingThreads(f"aioelastic: wait for process {self._pid}", 1)
        try:
            _, wait_status = await threads.run(os.waitpid, self._pid, 0)
        except ChildProcessError:
            status = ExitStatus(code=None, reaped_elsewhere=True)
        else:
            status = ExitStatus(code=os.waitstatus_to_exitcode(wait_status))
        finally:
            await threads.close()
        self._on_reaped(status)
        if self._on_exit is not None:
            self._on_exit()
        return status
