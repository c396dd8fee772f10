"""`start_processes`: choose the context for an entrypoint, and start it."""

import os
import signal
from collections.abc import Callable, Coroutine, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any

from aioelastic._base.aliases import Environment, StrPath
from aioelastic._base.defaults import DEATH_SIGNAL, DRAIN_TIMEOUT, SHUTDOWN_TIMEOUT
from aioelastic._contexts.checks import check_entrypoint, checked_method
from aioelastic._contexts.context import PContext
from aioelastic._contexts.subprocess_context import SubprocessContext
from aioelastic._errors.exceptions import SpecificationError
from aioelastic._logs.lines import FilterEntry
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs
from aioelastic._logs.std import Std
from aioelastic._numa.options import NumaOptions


def start_processes(
    name: str,
    entrypoint: StrPath | Callable[..., Any],
    args: Mapping[int, Any],
    envs: Mapping[int, Environment] | None = None,
    logs_specs: LogsSpecs | None = None,
    log_line_prefixes: Mapping[int, str] | None = None,
    start_method: str = "spawn",
    numa_options: NumaOptions | None = None,
    duplicate_stdout_filters: Sequence[FilterEntry] | None = None,
    duplicate_stderr_filters: Sequence[FilterEntry] | None = None,
    *,
    log_dir: StrPath | None = None,
    redirects: Std | Mapping[int, Std] = Std.NONE,
    tee: Std | Mapping[int, Std] = Std.NONE,
    local_ranks_filter: Iterable[int] | None = None,
    cwd: StrPath | None = None,
    death_sig: signal.Signals = DEATH_SIGNAL,
    shutdown_timeout: float = SHUTDOWN_TIMEOUT,
    drain_timeout: float = DRAIN_TIMEOUT,
    orphan_guard: bool = True,
    sweep_descendants: bool = True,
) -> "Starting":
    """Start n copies of a command, or of a function, as one supervised group.

    Await it for the running context, or use it in ``async with``, which closes the context on leaving. The arguments
    are checked when it is called, and what only the disk knows of them when it is awaited, before anything starts.
    Then all ranks start or none: if one cannot, those before it are killed and reaped, and one error says which and
    why.

    Each rank leads a session of its own, with stdin from /dev/null, no blocked signals, and the supervisor's
    environment below its own variables. Nothing of the supervisor's world is changed: no handler, mask or variable.

    A function runs in a process of `multiprocessing` each, and its values come back in the result. A script that starts
    functions by "spawn" or "forkserver" is imported again by each rank, so what it does goes under
    ``if __name__ == "__main__":``. Lambdas, closures and what a notebook defines need cloudpickle, or "fork".

    When the group has ended or is closed, nothing is alive that its ranks have started, in whichever session: it bears
    a mark in its environment (``AIOELASTIC_RANK_TOKEN``), and what is started without that variable has opted out. The
    same holds when this program is killed: a small helper process, there as long as a group is, ends the ranks then.

    Cancellation while it starts leaves nothing.

    Args:
        name: A short name of the group, shown before its lines.
        entrypoint: The program: a path, or a name looked up in each rank's PATH. Or a function, plain or ``async def``.
        args: Rank -> its arguments; a bare ``str`` is one argument. Those of a command are each made text.
        envs: Rank -> its variables; ``None`` as a value removes an inherited one. They are in force before a function's
            module is imported (spawn, forkserver).
        logs_specs: Where the output goes; or use ``log_dir``, ``redirects``, ``tee`` and ``local_ranks_filter``.
        log_line_prefixes: Rank -> what stands before its lines on the console; ``[name rank]:`` when not given.
        start_method: For functions only: "spawn" (a new interpreter), "fork" (a copy of this program: quick, and as
            safe as its threads let it be) or "forkserver" (a copy of a clean process).
        numa_options: Which CPUs each rank is bound to before it runs a line of its own; no binding by default.
        duplicate_stdout_filters: Prefixed lines of teed stdouts that contain any of these (``str``: substring,
            ``re.Pattern``: search) are copied to one file.
        duplicate_stderr_filters: The same for stderrs.
        log_dir: Shorthand for ``DefaultLogsSpecs(log_dir=...)``.
        redirects: Streams that go to files, for all ranks or by rank.
        tee: Streams that go to files and, with a prefix, to the console.
        local_ranks_filter: The only ranks that may use the console.
        cwd: The ranks' working directory; the supervisor's own when not given.
        death_sig: What the ranks get first when the group ends.
        shutdown_timeout: Seconds from there to SIGKILL, for all ranks together.
        drain_timeout: Seconds from a rank's exit to the end of its logs, although somebody still holds its pipe.
        orphan_guard: Have the ranks ended by a helper process if this program is killed, with ``death_sig``, then
            SIGKILL after at most 2 seconds; what is left in their pipes goes to their files.
        sweep_descendants: End what has left the ranks' sessions (daemons), too.

    Returns:
        What gives the running `PContext`, a `SubprocessContext` for a command, a `MultiprocessContext` for a function.

    Raises:
        SpecificationError: An argument that cannot be used; its subclasses say of which kind.
        ContextStateError: When awaited: a rank that is importing the main module starts functions itself.
        RankStartError: When awaited: a rank could not start; also the `OSError` that `subprocess` would raise.
        NumaBindingError: When awaited: a rank cannot be bound to CPUs, and there is no fall-back.
        DescriptorLimitError: When awaited: the limit of open files cannot hold the group.
        OSError: When awaited: the log directory cannot be used.

    Example:
        >>> import asyncio
        >>> async def main() -> dict[int, int | None]:
        ...     async with start_processes("exits", "sh", args={0: ("-c", "exit 0"), 1: ("-c", "exit 3")}) as context:
        ...         result = await context.wait()
        ...     return {rank: each.exitcode for rank, each in result.failures.items()}
        >>> asyncio.run(main())
        {1: 3}
    """
    check_entrypoint(entrypoint)
    checked_method(start_method)  # of commands, too: it may have been meant
    logs_specs = _one_specs(logs_specs, log_dir, redirects, tee, local_ranks_filter)
    common: dict[str, Any] = {
        "cwd": cwd,
        "death_sig": death_sig,
        "shutdown_timeout": shutdown_timeout,
        "drain_timeout": drain_timeout,
        "orphan_guard": orphan_guard,
        "sweep_descendants": sweep_descendants,
    }
    places = log_line_prefixes, numa_options, duplicate_stdout_filters, duplicate_stderr_filters
    if isinstance(entrypoint, str | os.PathLike):
        return Starting(SubprocessContext(name, entrypoint, args, envs, logs_specs, *places, **common))
    # Loads multiprocessing, which groups of commands have no use for.
    from aioelastic._contexts.multiprocess_context import MultiprocessContext  # noqa: PLC0415 - see above

    return Starting(MultiprocessContext(name, entrypoint, args, envs, start_method, logs_specs, *places, **common))


def _one_specs(
    logs_specs: LogsSpecs | None,
    log_dir: StrPath | None,
    redirects: Std | Mapping[int, Std],
    tee: Std | Mapping[int, Std],
    local_ranks_filter: Iterable[int] | None,
) -> LogsSpecs:
    """Give the log specifications, which may have been said in one way or the other."""
    if logs_specs is None:
        return DefaultLogsSpecs(log_dir, redirects, tee, local_ranks_filter)
    shorthands = {
        "log_dir": log_dir is not None,
        "redirects": redirects is not Std.NONE,
        "tee": tee is not Std.NONE,
        "local_ranks_filter": local_ranks_filter is not None,
    }
    given = [argument for argument, is_given in shorthands.items() if is_given]
    if given:
        raise SpecificationError(f"logs_specs and {', '.join(given)} say the same thing twice: give one of them")
    return logs_specs


class Starting(Coroutine[Any, Any, PContext], AbstractAsyncContextManager[PContext]):
    """A context on its way: await it, or use it in ``async with``.

    It is a full coroutine, so that ``asyncio.create_task`` and ``asyncio.wait_for`` take it as well.

    Attributes:
        context: The context, for who wants its events, or to close it, before it has started.
    """

    def __init__(self, context: PContext) -> None:
        self.context = context
        self._coroutine = _started(context)

    def send(self, value: Any) -> Any:
        """Go on with the start; for the event loop."""
        return self._coroutine.send(value)

    def throw(self, *args: Any) -> Any:
        """Raise an exception where the start stands; for the event loop."""
        return self._coroutine.throw(*args)

    def close(self) -> None:
        """Give the start up before it has begun."""
        self._coroutine.close()

    def __await__(self) -> Generator[Any, Any, PContext]:
        return self._coroutine.__await__()

    async def __aenter__(self) -> PContext:
        return await self._coroutine

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.context.close()


async def _started(context: PContext) -> PContext:
    await context.start()
    return context
