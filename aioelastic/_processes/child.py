"""One child process: started at once, its exit an event of the loop.

`asyncio.create_subprocess_exec` does nearly that, but loses on details that matter here. Its start can be cancelled
half-way and lose the process (https://github.com/python/cpython/issues/125502). A status that another part of the
program took becomes 255. On Python 3.11 it keeps a thread per process. uvloop forks the whole program, which takes
hundreds of milliseconds in a big one, lets the child inherit its own descriptors, sees the exits of one turn in the
order of the starts, and never ends if a status was taken. So the process is started by `subprocess.Popen`, as asyncio
does it, and watched through a handle (pidfd), as asyncio does from Python 3.12 on, but ours: it tells of the exit in
the kernel's order and can be asked without the loop. The caller gets it as the `asyncio.subprocess.Process` it knows.
"""

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any, Protocol

from aioelastic._processes.exit_status import reap
from aioelastic._processes.process_handles import handle_has_exited, has_handles
from aioelastic._processes.rank_process import ExitStatus

UNKNOWN_CODE = 255
"""What asyncio gives for a status that nobody knows (its child watchers)."""


class Child(Protocol):
    """A started child."""

    process: asyncio.subprocess.Process
    """The child as asyncio shows it."""

    def has_exited(self) -> bool:
        """Ask the kernel, not the event loop, whether it has ended."""
        ...

    async def wait_status(self) -> ExitStatus:
        """Wait for its end; any number of tasks may."""
        ...


async def start_child(command: tuple[str, ...], on_exit: Callable[[], None] | None, **options: Any) -> Child:
    """Start a command.

    Args:
        command: Program and arguments.
        on_exit: Called on the loop as soon as the exit is seen.
        options: As for `subprocess.Popen`; without pipes.

    Raises:
        OSError: The system refused; nothing was started.
    """
    if not has_handles():
        return _LoopChild(await asyncio.create_subprocess_exec(*command, **options), on_exit)
    popen = subprocess.Popen(command, **options)  # noqa: ASYNC220 - what asyncio does, too: the start itself is brief
    try:
        return _HeldChild(popen, on_exit)
    except OSError:  # no descriptor left for the handle
        popen.kill()
        popen.wait()
        raise


class _HeldChild(asyncio.SubprocessTransport):
    """A child held by handle (`Child`), and the transport of its `asyncio.subprocess.Process`."""

    def __init__(self, popen: "subprocess.Popen[bytes]", on_exit: Callable[[], None] | None) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._popen = popen
        self._on_exit = on_exit
        self._ended: asyncio.Future[ExitStatus] = self._loop.create_future()
        self._handle = os.pidfd_open(popen.pid)
        self._loop.add_reader(self._handle, self._see_exit)
        protocol = asyncio.subprocess.SubprocessStreamProtocol(limit=2**16, loop=self._loop)
        self.process = asyncio.subprocess.Process(self, protocol, self._loop)

    def has_exited(self) -> bool:
        """Ask the kernel whether it has ended."""
        return self._ended.done() or handle_has_exited(self._handle)

    async def wait_status(self) -> ExitStatus:
        """Wait for its end."""
        if not self._ended.done():
            await asyncio.wait([self._ended])
        return self._ended.result()

    async def _wait(self) -> int:
        """Wait for its end; `asyncio.subprocess.Process.wait` calls this."""
        return _code(await self.wait_status())

    def get_pid(self) -> int:
        """Give its process id."""
        return self._popen.pid

    def get_returncode(self) -> int | None:
        """Give its exit code, or ``None`` while it runs."""
        return _code(self._ended.result()) if self._ended.done() else None

    def get_pipe_transport(self, fd: int) -> None:
        """Give no pipe: there is none."""

    def send_signal(self, signal: int) -> None:
        """Signal the process itself, without its group."""
        if self._ended.done():
            raise ProcessLookupError(self._popen.pid)
        _send(self._handle, signal)

    def terminate(self) -> None:
        """Send SIGTERM to the process itself."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process itself."""
        self.send_signal(signal.SIGKILL)

    def _see_exit(self) -> None:
        self._loop.remove_reader(self._handle)
        status = reap(self._popen.pid, self._handle)
        os.close(self._handle)
        # Known to Popen, too, or it would complain that the process still runs, and reap by number.
        self._popen.returncode = _code(status)
        self._ended.set_result(status)
        if self._on_exit is not None:
            self._on_exit()


class _LoopChild:
    """A child watched by asyncio (`Child`), where processes cannot be held by handle."""

    def __init__(self, process: asyncio.subprocess.Process, on_exit: Callable[[], None] | None) -> None:
        self.process = process
        self._on_exit = on_exit

    def has_exited(self) -> bool:
        """Tell whether the loop has seen its end."""
        return self.process.returncode is not None

    async def wait_status(self) -> ExitStatus:
        """Wait for its end."""
        code = await self.process.wait()
        if self._on_exit is not None:
            on_exit, self._on_exit = self._on_exit, None
            on_exit()
        return ExitStatus(code=code)


def _code(status: ExitStatus) -> int:
    return UNKNOWN_CODE if status.code is None else status.code


def _send(handle: int, number: int) -> None:
    signal.pidfd_send_signal(handle, number)
