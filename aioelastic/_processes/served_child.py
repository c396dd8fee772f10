"""A process that the fork server has forked for us: not our child, so the server reaps it and tells us of it."""

import asyncio
import errno
import os
import select
import signal
import struct
from collections.abc import Callable

import anyio

from aioelastic._base.defaults import FORK_SERVER_TIMEOUT, REAP_TIMEOUT
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._processes.process_handles import handle_has_exited, open_handle
from aioelastic._processes.rank_process import ExitStatus

_NUMBER = struct.Struct("q")
"""A number as the server tells it (`multiprocessing.forkserver.SIGNED_STRUCT`)."""


async def forked_pid(told: int) -> int:
    """Wait for the server to tell the process id.

    Args:
        told: The reading end of its pipe.

    Raises:
        OSError: The server has ended, or does not answer.
    """
    os.set_blocking(told, False)
    try:
        with anyio.fail_after(FORK_SERVER_TIMEOUT):
            await anyio.wait_readable(told)
    except TimeoutError:
        raise OSError(
            errno.ETIMEDOUT,
            f"the fork server did not answer within {FORK_SERVER_TIMEOUT:.0f} s",
        ) from None
    number = os.read(told, _NUMBER.size)
    if len(number) != _NUMBER.size:
        raise ChildProcessError(errno.ECHILD, "the fork server has ended; its stderr may say why")
    (pid,) = _NUMBER.unpack(number)
    return int(pid)


class ServedChild:
    """A process of the fork server (`Child`).

    Args:
        pid: Its process id.
        told: Where the server tells its exit code; owned from now on.
        on_exit: Called on the loop as soon as the exit is seen.
    """

    def __init__(self, pid: int, told: int, on_exit: Callable[[], None]) -> None:
        self.pid = pid
        self._loop = asyncio.get_running_loop()
        self._on_exit = on_exit
        self._ended: asyncio.Future[ExitStatus] = self._loop.create_future()
        self._gone = False
        self._handle: int | None = None
        try:
            handle = open_handle(pid)
            self._handle = None if handle is None else keep_private(handle)
        except ProcessLookupError:
            self._gone = True
        self._told: int = keep_private(told)
        self._patience: asyncio.TimerHandle | None = None
        if self._handle is not None:
            self._loop.add_reader(self._handle, self._see_exit)
        else:
            self._loop.add_reader(self._told, self._read_status)

    def has_exited(self) -> bool:
        """Ask the kernel whether it has ended."""
        if self._gone or self._ended.done():
            return True
        if self._handle is not None:
            return handle_has_exited(self._handle)
        poller = select.poll()
        poller.register(self._told, select.POLLIN)
        return bool(poller.poll(0))

    async def wait_status(self) -> ExitStatus:
        """Wait for its end; any number of tasks may."""
        if not self._ended.done():
            await asyncio.wait([self._ended])
        return self._ended.result()

    def send_signal(self, number: int) -> None:
        """Signal the process itself.

        Raises:
            ProcessLookupError: It has ended.
        """
        if self.has_exited():
            raise ProcessLookupError(self.pid)
        if self._handle is None:
            os.kill(self.pid, number)
        else:
            signal.pidfd_send_signal(self._handle, number)

    def _see_exit(self) -> None:
        """Note the exit; the server reaps it and tells its code in a moment."""
        if self._handle is not None:
            self._loop.remove_reader(self._handle)
            close_private(self._handle)
            self._handle = None
        self._gone = True
        self._on_exit()
        self._loop.add_reader(self._told, self._read_status)
        # Of a stopped server nothing is heard.
        self._patience = self._loop.call_later(REAP_TIMEOUT, self._end, ExitStatus(code=None))

    def _read_status(self) -> None:
        try:
            number = os.read(self._told, _NUMBER.size)
        except BlockingIOError:
            return
        if not self._gone:
            self._gone = True
            self._on_exit()
        # Nothing, if the server was killed: then nobody knows the code.
        self._end(ExitStatus(code=_NUMBER.unpack(number)[0] if number else None))

    def _end(self, status: ExitStatus) -> None:
        if self._patience is not None:
            self._patience.cancel()
        self._loop.remove_reader(self._told)
        close_private(self._told)
        self._ended.set_result(status)
