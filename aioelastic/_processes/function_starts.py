"""Starting the process of a function rank, in each of the three ways of `multiprocessing`."""

import asyncio
import atexit
import contextlib
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing import reduction, resource_tracker, spawn, util
from typing import Final, NoReturn

from aioelastic._base.aliases import StartMethod
from aioelastic._base.private_descriptors import close_private, keep_private, share
from aioelastic._base.shielding import settled_in_thread
from aioelastic._base.signals import INHERITED_IGNORED, signals_held_back
from aioelastic._child.function_process import Call, FunctionProcess
from aioelastic._child.pickling import PROTOCOL, Pieces
from aioelastic._child.world import World
from aioelastic._processes.child import Child, start_child
from aioelastic._processes.exit_watch import watch_exit
from aioelastic._processes.feed import Feed
from aioelastic._processes.fork_server import request_process
from aioelastic._processes.function_calls import Handover, Preparation, PreparedCall
from aioelastic._processes.killed import settle_killed
from aioelastic._processes.rank_process import ExitStatus
from aioelastic._processes.served_child import ServedChild, forked_pid
from aioelastic._processes.stdio import stdio_argument, stdio_descriptor

SERVED_DESCRIPTORS: Final = 3
"""What a process of the fork server is given before its call's own descriptors: stdout, stderr, the value's pipe."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FunctionStart:
    """One function rank to be started, checked.

    Attributes:
        name: The name of its process.
        call: What it is to call: pickled, unless it is forked.
        preparation: What a new interpreter is told before; ``None`` for a fork.
        environment: All its variables.
        cwd: Its working directory, or ``None`` for the supervisor's own.
        stdout: Descriptor to hand over, or ``None`` to inherit.
        stderr: The same for standard error.
        value: The writing end of the pipe for its value.
        bind: Binds a process to CPUs before it is told its call, given its process id; ``None`` for no binding.
    """

    name: str
    call: Call | PreparedCall
    preparation: Preparation | None
    environment: dict[str, str]
    cwd: str | None
    stdout: int | None
    stderr: int | None
    value: int
    bind: Callable[[int], None] | None


@dataclass(frozen=True, slots=True)
class StartedFunction:
    """A started process, and what it is still being told."""

    child: Child
    feed: Feed | None


async def start_function(method: StartMethod, start: FunctionStart, on_exit: Callable[[], None]) -> StartedFunction:
    """Start a process.

    Args:
        method: How.
        start: What.
        on_exit: Called on the loop as soon as the exit is seen.

    Raises:
        OSError: The system refused; nothing was started.
        NumaBindingError: The process could not be bound; nothing is left of it.
    """
    if isinstance(start.call, PreparedCall) and start.preparation is not None:
        starts = _spawn if method == "spawn" else _serve
        return await starts(start, start.call, start.preparation, on_exit)
    return await _fork(start, on_exit)


async def _spawn(
    start: FunctionStart, call: PreparedCall, preparation: Preparation, on_exit: Callable[[], None]
) -> StartedFunction:
    tracker = resource_tracker.getfd()
    # To take the buffers from C's streams later, a rank has to load ctypes, a good part of its start.
    unbuffered = ["-u"] if not getattr(sys, "frozen", False) else []
    world = World(tuple(INHERITED_IGNORED), unbuffered=bool(unbuffered))
    process = FunctionProcess(start.name, "spawn", world, start.value, call.call)
    with _data_pipe() as (reading, feed), contextlib.ExitStack() as opened:
        program, *words = spawn.get_command_line(tracker_fd=tracker, pipe_handle=reading)
        child = start_child(
            (program, *unbuffered, *words),
            on_exit,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=stdio_argument(1, start.stdout, opened),
            stderr=stdio_argument(2, start.stderr, opened),
            env=start.environment,
            start_new_session=True,
            pass_fds=(tracker, reading, start.value, *call.descriptors),
        )
        if start.bind is not None:
            await _bound(child, start.bind)
        feed.send(_pickled(process, preparation))
    return StartedFunction(child, feed)


async def _serve(
    start: FunctionStart, call: PreparedCall, preparation: Preparation, on_exit: Callable[[], None]
) -> StartedFunction:
    world = World(tuple(INHERITED_IGNORED), (0, 1), start.environment)
    process = FunctionProcess(start.name, "forkserver", world, 2, call.call)
    with contextlib.ExitStack() as opened:
        stdio = [stdio_descriptor(1, start.stdout, opened), stdio_descriptor(2, start.stderr, opened)]
        pipes: list[int] = []
        try:
            await settled_in_thread(pipes.extend, request_process, [*stdio, start.value, *call.descriptors])
        except asyncio.CancelledError:
            # Without anything to read, the process ends.
            for descriptor in pipes:
                os.close(descriptor)
            raise
    told, data = pipes
    feed = Feed(data)
    try:
        try:
            child = ServedChild(await forked_pid(told), told, on_exit)
        except BaseException:
            os.close(told)
            raise
        if start.bind is not None:
            await _bound(child, start.bind)
    except BaseException:
        feed.close()
        raise
    feed.send(_pickled(process, preparation))
    return StartedFunction(child, feed)


async def _fork(start: FunctionStart, on_exit: Callable[[], None]) -> StartedFunction:
    with contextlib.ExitStack() as opened:
        stdio = stdio_descriptor(1, start.stdout, opened), stdio_descriptor(2, start.stderr, opened)
        go = None
        if start.bind is not None:
            go, release = os.pipe()
            opened.callback(os.close, go)
            opened.callback(close_private, keep_private(release))
        world = World(tuple(INHERITED_IGNORED), stdio, start.environment, start.cwd, go=go)
        process = FunctionProcess(start.name, "fork", world, start.value, start.call)  # type: ignore[arg-type]  # a Call
        for descriptor in (*stdio, start.value):
            share(descriptor)
        child = _ForkedChild(*_forked(process), on_exit)
        if start.bind is not None:
            await _bound(child, start.bind)
            os.write(release, b"!")
    return StartedFunction(child, None)


async def _bound(child: Child, bind: Callable[[int], None]) -> None:
    """Bind a process that waits to be told its call, or leave no process."""
    try:
        bind(child.pid)
    except BaseException:
        with contextlib.suppress(ProcessLookupError):
            child.send_signal(signal.SIGKILL)
        await settle_killed(child)
        raise


def _forked(process: FunctionProcess) -> tuple[int, int]:
    """Fork, and run the process to its end in the copy.

    Not by `multiprocessing.popen_fork`, which does the same but leaves its pipes open when there can be no more
    processes.

    Returns:
        The process id, and the writing end of a pipe by whose end the copy learns that we are gone.
    """
    for stream in (sys.stdout, sys.stderr):
        # What stands in it would be printed by the copy, too. It may be anything that has a write method.
        with contextlib.suppress(AttributeError, ValueError, OSError):
            stream.flush()
    sentinel, ours = os.pipe()
    with contextlib.ExitStack() as opened:
        opened.callback(os.close, sentinel)
        try:
            # The copy gets no signal before it has let go of our handlers.
            with signals_held_back():
                pid = os.fork()
                if not pid:
                    _be_copy(process, sentinel, ours)
        except BaseException:
            os.close(ours)
            raise
    return pid, ours


def _be_copy(process: FunctionProcess, sentinel: int, others: int) -> NoReturn:
    code = 1
    try:
        # As multiprocessing does from Python 3.13 on: what the supervisor wants to be done at its exit is not ours.
        atexit._clear()  # noqa: SLF001 - see above
        atexit.register(util._exit_function)  # type: ignore[attr-defined]  # noqa: SLF001 - joins children, ends queues
        os.close(others)
        code = process._bootstrap(sentinel)  # noqa: SLF001 - what multiprocessing calls
    finally:
        try:
            atexit._run_exitfuncs()  # noqa: SLF001 - see above
        finally:
            os._exit(code)


class _ForkedChild:
    """A forked copy of this program (`Child`)."""

    def __init__(self, pid: int, sentinel: int, on_exit: Callable[[], None]) -> None:
        self.pid = pid
        # As long as another rank had a copy of it, a rank would not notice that the supervisor is gone.
        self._sentinel = keep_private(sentinel)
        try:
            self._watch = watch_exit(pid, self._see_reaped, on_exit)
        except OSError:  # no descriptor left for the handle
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            close_private(sentinel)
            raise

    def has_exited(self) -> bool:
        """Ask the kernel whether it has ended."""
        return self._watch.has_exited()

    async def wait_status(self) -> ExitStatus:
        """Wait for its end."""
        return await self._watch.wait_status()

    def send_signal(self, number: int) -> None:
        """Signal the process itself."""
        self._watch.send_signal(number)

    def _see_reaped(self, _: ExitStatus) -> None:
        close_private(self._sentinel)


@contextlib.contextmanager
def _data_pipe() -> Iterator[tuple[int, Feed]]:
    """Open the pipe by which a new process is told what it is to do."""
    reading, writing = os.pipe()
    feed = Feed(writing)
    try:
        yield reading, feed
    except BaseException:
        feed.close()
        raise
    finally:
        os.close(reading)


def _pickled(process: FunctionProcess, preparation: Preparation) -> Sequence[bytes]:
    file = Pieces()
    with Handover("spawn").pickling():
        reduction.dump({**preparation.data, "name": process.name}, file, PROTOCOL)
        reduction.dump(process, file, PROTOCOL)
    return file.pieces
