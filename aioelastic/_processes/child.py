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
import signal
import subprocess
from collections.abc import Callable
from functools import cached_property
from typing import Any, Final, Protocol

from aioelastic._processes.exit_watch import watch_exit
from aioelastic._processes.rank_process import ExitStatus

_UNKNOWN_CODE: Final = 255
"""What asyncio gives for a status that nobody knows (its child watchers)."""


class Child(Protocol):
    """A started process that will be reaped by nobody but this program, or told of by who reaps it."""

    @property
    def pid(self) -> int:
        """Its process id."""
        ...

    def has_exited(self) -> bool:
        """Ask the kernel, not the event loop, whether it has ended."""
        ...

    async def wait_status(self) -> ExitStatus:
        """Wait for its end; any number of tasks may."""
        ...

    def send_signal(self, number: int) -> None:
        """Signal the process itself, without its group.

        Raises:
            ProcessLookupError: It has ended.
        """
        ...


class CommandChild(Child, Protocol):
    """A child that runs a command."""

    @property
    def process(self) -> asyncio.subprocess.Process:
        """The child as asyncio shows it."""
        ...


def start_child(command: tuple[str, ...], on_exit: Callable[[], None] | None, **options: Any) -> CommandChild:
    """Start a command; that takes the loop about a millisecond, as it does with asyncio.

    Args:
        command: Program and arguments.
        on_exit: Called on the loop as soon as the exit is seen.
        options: As for `subprocess.Popen`; without pipes.

    Raises:
        OSError: The system refused; nothing was started.
    """
    popen = subprocess.Popen(command, **options)
    try:
        return _PopenChild(popen, on_exit)
    except OSError:  # no descriptor left for the handle
        popen.kill()
        popen.wait()
        raise


class _PopenChild(asyncio.SubprocessTransport):
    """A child (`CommandChild`), and the transport of its `asyncio.subprocess.Process`."""

    def __init__(self, popen: "subprocess.Popen[bytes]", on_exit: Callable[[], None] | None) -> None:
        super().__init__()
        self._popen = popen
        self._watch = watch_exit(popen.pid, self._tell_popen, on_exit)
        self._loop = asyncio.get_running_loop()

    @cached_property
    def process(self) -> asyncio.subprocess.Process:
        """The child as asyncio shows it; made for who asks, since few do."""
        protocol = asyncio.subprocess.SubprocessStreamProtocol(limit=2**16, loop=self._loop)
        return asyncio.subprocess.Process(self, protocol, self._loop)

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._popen.pid

    def has_exited(self) -> bool:
        """Ask the kernel whether it has ended."""
        return self._watch.has_exited()

    async def wait_status(self) -> ExitStatus:
        """Wait for its end."""
        return await self._watch.wait_status()

    async def _wait(self) -> int:
        """Wait for its end; `asyncio.subprocess.Process.wait` calls this."""
        return shown_code(await self.wait_status())

    def get_pid(self) -> int:
        """Give its process id."""
        return self._popen.pid

    def get_returncode(self) -> int | None:
        """Give its exit code, or ``None`` while it runs."""
        status = self._watch.status
        return None if status is None else shown_code(status)

    def get_pipe_transport(self, fd: int) -> None:
        """Give no pipe: there is none."""

    def send_signal(self, number: int) -> None:
        """Signal the process itself, without its group."""
        self._watch.send_signal(number)

    def terminate(self) -> None:
        """Send SIGTERM to the process itself."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL to the process itself."""
        self.send_signal(signal.SIGKILL)

    def _tell_popen(self, status: ExitStatus) -> None:
        # Or it would complain that the process still runs, and reap by number.
        self._popen.returncode = shown_code(status)


def shown_code(status: ExitStatus) -> int:
    """Give an exit code as asyncio gives it, whose words have none for a status that nobody knows."""
    return _UNKNOWN_CODE if status.code is None else status.code
