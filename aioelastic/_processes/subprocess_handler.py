"""One command rank: an asyncio subprocess that leads a session of its own."""

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from aioelastic._base.aliases import Environment, StrPath
from aioelastic._base.defaults import DEATH_SIGNAL
from aioelastic._base.shielding import settle, settled_in_thread
from aioelastic._base.threads import in_thread
from aioelastic._errors.exceptions import RankStartError
from aioelastic._logs.files import checked_log_path, open_log
from aioelastic._numa.options import NumaOptions, check_numa_options
from aioelastic._processes.child import CommandChild, shown_code, start_child
from aioelastic._processes.command_line import command_line, find_command, rank_environment
from aioelastic._processes.killed import settle_killed
from aioelastic._processes.members import Member
from aioelastic._processes.rank_process import ExitStatus
from aioelastic._processes.session import signal_session
from aioelastic._processes.signal_state import ExecStep, exec_outcome, exec_step, needs_exec_step
from aioelastic._processes.stdio import stdio_argument
from aioelastic._processes.system_table import SystemTable

if TYPE_CHECKING:
    from aioelastic._numa.binding import Binder


class SubprocessHandler:
    """One rank as an asyncio subprocess (``RankProcess``); made by `get_subprocess_handler`.

    Attributes:
        local_rank_id: Its number within its group.
        global_rank: The number in its ``RANK`` variable, or ``None`` without one.
    """

    def __init__(self, child: CommandChild, local_rank_id: int, global_rank: int | None = None) -> None:
        self.local_rank_id = local_rank_id
        self.global_rank = global_rank
        self._child = child

    @property
    def proc(self) -> asyncio.subprocess.Process:
        """The process as asyncio knows it."""
        return self._child.process

    @property
    def pid(self) -> int:
        """The process id, which is also the number of the session and the process group."""
        return self._child.pid

    def has_exited(self) -> bool:
        """Ask the kernel whether the process has ended; the event loop may not know yet."""
        return self._child.has_exited()

    async def wait(self) -> int:
        """Wait for the process to exit, whoever still holds its pipes.

        Any number of tasks may wait; a cancelled one leaves the process alone.

        Returns:
            The exit code, or minus the signal's number. As asyncio does, 255 where another part of the program took
            the status and the kernel kept none.
        """
        status = await self.wait_status()
        return shown_code(status)

    async def wait_status(self) -> ExitStatus:
        """Wait as `wait` does, and tell an unknown status from one of 255."""
        return await self._child.wait_status()

    def close(self, death_sig: signal.Signals | None = None) -> None:
        """Signal the whole process group, and whatever else is left in the rank's session; what is stopped hears it.

        It returns at once; `wait` tells when the process is gone. Closing one that is gone is fine: a number that was
        reaped is never signalled, and what the process left behind is reached one by one.

        Args:
            death_sig: The signal; SIGTERM when not given.
        """
        left = SystemTable().members({self.pid: self.has_exited()})
        number = death_sig or DEATH_SIGNAL
        for each in (number,) if number == signal.SIGKILL else (number, signal.SIGCONT):
            self.signal_group(each, left)

    def signal_group(self, number: int, members: Collection[Member]) -> int:
        """Send a signal to the process group at once, and to the given members outside it."""
        return signal_session(self._child, number, members)

    def __repr__(self) -> str:
        state = "exited" if self.has_exited() else "running"
        return f"<SubprocessHandler rank {self.local_rank_id}, pid {self.pid}, {state}>"


async def get_subprocess_handler(
    entrypoint: StrPath,
    args: Sequence[Any] | str,
    env: Environment,
    stdout: StrPath | None,
    stderr: StrPath | None,
    local_rank_id: int,
    numa_options: NumaOptions | None = None,
) -> SubprocessHandler:
    """Start one command as a rank and give its handler.

    The command runs in a session of its own, with stdin from /dev/null, no blocked signals and default dispositions.

    Cancellation leaves nothing behind: a process that was already started is killed.

    Args:
        entrypoint: The program: a path, or a name looked up in the rank's PATH.
        args: Its arguments, each made text; a bare ``str`` is one argument.
        env: Variables on top of the supervisor's own; ``None`` as a value removes one.
        stdout: File that gets its standard output (appended to), or ``None`` to inherit; ``""`` does so, too, as in a
            `LogsDest`.
        stderr: The same for its standard error.
        local_rank_id: Its number within its group.
        numa_options: Which CPUs it is bound to, as the last one of ``local_rank_id + 1`` ranks; all by default.

    Returns:
        The handler of a running process.

    Raises:
        SpecificationError: An argument or a variable that no process can be given, or a path that no file can have.
        RankStartError: The command or a file could not be opened or started; also the matching `OSError` subclass.
        NumaBindingError: It cannot be bound to CPUs, and there is no fall-back.

    Example:
        >>> import asyncio
        >>> async def main() -> int:
        ...     handler = await get_subprocess_handler("true", (), {}, None, None, 0)
        ...     return await handler.wait()
        >>> asyncio.run(main())
        0
    """
    options = check_numa_options(numa_options)
    command = command_line(entrypoint, args, local_rank_id)
    environment = rank_environment(os.environ, env, local_rank_id)
    paths = [_path("stdout", stdout), _path("stderr", stderr)]
    binder = None if options is None else await in_thread(_plan_binding, options, local_rank_id, environment)
    with contextlib.ExitStack() as opened:
        try:
            find_command(command[0], environment, None)
            descriptors = [await _opened(path, opened) for path in paths]
        except OSError as error:
            raise RankStartError(local_rank_id, command, None, error) from error
        start = asyncio.ensure_future(
            start_command(
                command,
                environment,
                local_rank=local_rank_id,
                stdout=descriptors[0],
                stderr=descriptors[1],
                by_step=needs_exec_step(),
                bind=None if binder is None else binder.binding_of(local_rank_id),
            )
        )
        try:
            return await asyncio.shield(start)
        except asyncio.CancelledError:
            # The exec step may be under way: let it finish, then kill what it gave.
            await settle(asyncio.ensure_future(_undo(start)))
            raise


async def start_command(
    command: tuple[str, ...],
    environment: Mapping[str, str],
    *,
    local_rank: int,
    cwd: str | None = None,
    stdout: int | None = None,
    stderr: int | None = None,
    by_step: bool,
    bind: Callable[[int], None] | None = None,
    on_exit: Callable[[], None] | None = None,
) -> SubprocessHandler:
    """Start a checked command as a rank.

    Args:
        command: Program and arguments.
        environment: The whole environment.
        local_rank: The rank's number.
        cwd: Its working directory.
        stdout: Descriptor to hand over (the caller closes its own), or ``None`` to inherit.
        stderr: The same for standard error.
        by_step: Whether the exec step has to set its signal state (`needs_exec_step`; asked once for a whole group, as
            it takes as long as a start).
        bind: Binds a process to CPUs before the command runs, given its process id; ``None`` for no binding.
        on_exit: Called on the loop as soon as the exit is seen, before anything else is done about it.

    Raises:
        RankStartError: The system refused.
        NumaBindingError: It could not be bound.
    """
    with contextlib.ExitStack() as opened:
        try:
            with contextlib.ExitStack() as handed:
                step: ExecStep | None = None
                if by_step or bind is not None:
                    step = exec_step(command, environment, opened, handed, waits=bind is not None)
                child = start_child(
                    command if step is None else step.command,
                    on_exit,
                    stdin=asyncio.subprocess.DEVNULL,
                    stdout=stdio_argument(1, stdout, handed),
                    stderr=stdio_argument(2, stderr, handed),
                    env=environment,
                    cwd=cwd,
                    start_new_session=True,
                    pass_fds=() if step is None else step.handed,
                )
            handler = SubprocessHandler(child, local_rank, _global_rank(environment))
            if step is not None:
                await _become_command(handler, step, bind)
        except OSError as error:
            raise RankStartError(local_rank, command, cwd, error) from error
    return handler


async def _become_command(handler: SubprocessHandler, step: ExecStep, bind: Callable[[int], None] | None) -> None:
    """Bind the exec step and wait until it has become the command, or leave no process."""
    try:
        if bind is not None and step.release is not None:
            bind(handler.pid)
            os.write(step.release, b"!")
        await exec_outcome(step.report)
    except BaseException:
        handler.signal_group(signal.SIGKILL, ())
        await settle_killed(handler)
        raise


async def _undo(start: "asyncio.Future[SubprocessHandler]") -> None:
    await asyncio.wait([start])
    if not start.cancelled() and start.exception() is None:
        start.result().close(signal.SIGKILL)
        await settle_killed(start.result())


def _plan_binding(options: NumaOptions, local_rank: int, environ: Mapping[str, str]) -> "Binder":
    from aioelastic._numa.binding import plan_binding  # noqa: PLC0415 - few ranks need it

    return plan_binding(options, local_rank + 1, environ)


def _path(argument: str, path: StrPath | None) -> str:
    return "" if path is None else checked_log_path(argument, path)


async def _opened(path: str, opened: contextlib.ExitStack) -> int | None:
    if not path:
        return None

    def keep(descriptor: int) -> None:
        opened.callback(os.close, descriptor)

    return await settled_in_thread(keep, open_log, path)


def _global_rank(environment: Mapping[str, str]) -> int | None:
    try:
        return int(environment["RANK"])
    except (KeyError, ValueError):
        return None
