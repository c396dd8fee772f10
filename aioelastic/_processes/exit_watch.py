"""Seeing one child's exit when it happens, and its status even if somebody else took it.

asyncio reaps a child and gives its status, but three things are missing: with uvloop the exits of one turn come in the
order of starting, not of dying; a status that another part of the program took becomes 255 (asyncio) or never comes
(uvloop); and the loop may learn of an exit long after it happened. A handle of our own (pidfd) is readable from the
very exit on, in the kernel's order, and can be asked without the loop.
"""

import asyncio
import contextlib
import os
import struct
from collections.abc import Callable

from aioelastic._processes.process_handles import handle_has_exited, open_handle
from aioelastic._processes.rank_process import ExitStatus
from aioelastic._processes.usage import Usage, usage_of_zombie

_STATUS_TIMEOUT = 1.0
"""Seconds for the loop's own watcher to give the status of a process that has exited."""

_ASYNCIO_UNKNOWN = 255
"""What asyncio reports for a status that somebody else took (``ThreadedChildWatcher``, ``PidfdChildWatcher``)."""

# struct pidfd_info and PIDFD_GET_INFO, include/uapi/linux/pidfd.h; exit_code after reaping since Linux 6.15.
_PIDFD_INFO = struct.Struct("=QQ11Ii")
_PIDFD_GET_INFO = 0xC0000000 | _PIDFD_INFO.size << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3


class ExitWatch:
    """The exit of one child of ours."""

    def __init__(self, process: asyncio.subprocess.Process, on_exit: Callable[[], None] | None) -> None:
        self._process = process
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._seen: asyncio.Future[None] = self._loop.create_future()
        self._status: ExitStatus | None = None
        self._kernel_code: int | None = None
        self._usage: Usage | None = None
        self._handle = _open_own_child(process.pid)
        if self._handle is not None:
            self._loop.add_reader(self._handle, self._see_exit)

    def has_exited(self) -> bool:
        """Ask the kernel whether the process has ended."""
        if self._handle is None:
            return self._seen.done() or self._process.returncode is not None
        return handle_has_exited(self._handle)

    async def wait_status(self) -> ExitStatus:
        """Wait for the exit, then for the status; any number of tasks may."""
        if self._handle is not None:
            await asyncio.wait([self._seen])
        elif not self._seen.done():
            await self._process.wait()
            self._see_exit()
        if self._status is None:
            self._status = _judge(await self._loop_code(), self._kernel_code, self._usage)
        return self._status

    def _see_exit(self) -> None:
        if self._seen.done():
            return
        self._seen.set_result(None)
        if self._handle is not None:
            handle, self._handle = self._handle, None
            self._loop.remove_reader(handle)
            self._usage = usage_of_zombie(handle)
            self._kernel_code = _kernel_exit_code(handle)
            os.close(handle)
        if self._on_exit is not None:
            self._on_exit()

    async def _loop_code(self) -> int | None:
        """Give the status as the event loop has it, or ``None`` when its watcher missed it (uvloop)."""
        if self._process.returncode is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_STATUS_TIMEOUT):
                    await self._process.wait()
        return self._process.returncode


def _judge(loop_code: int | None, kernel_code: int | None, usage: Usage | None) -> ExitStatus:
    if kernel_code is None:
        # Before Linux 6.15 nobody can tell an exit of 255 from asyncio's stand-in.
        return ExitStatus(code=loop_code, reaped_elsewhere=loop_code is None, usage=usage)
    taken = loop_code is None or (loop_code == _ASYNCIO_UNKNOWN and kernel_code != loop_code)
    return ExitStatus(code=kernel_code, reaped_elsewhere=taken, usage=usage)


def _open_own_child(pid: int) -> int | None:
    """Hold a child, or give ``None`` when it is over and reaped already: the number may be a stranger's by now."""
    try:
        handle = open_handle(pid)
    except ProcessLookupError:
        return None
    if handle is not None:
        try:
            os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        except OSError:
            os.close(handle)
            return None
    return handle


def _kernel_exit_code(handle: int) -> int | None:
    """Ask the kernel how a process ended: before it is reaped by looking, afterwards by what it keeps for handles."""
    try:
        ended = os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except OSError:
        return _kept_exit_code(handle)
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _kept_exit_code(handle: int) -> int | None:
    """Read the exit code that the kernel keeps for a handle after the process was reaped."""
    import fcntl  # noqa: PLC0415 - not on every platform, and needed only here

    info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(handle, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, *_, wait_status = _PIDFD_INFO.unpack(info)
    return os.waitstatus_to_exitcode(wait_status) if mask & _PIDFD_INFO_EXIT else None
