"""A group of functions."""

import contextlib
import os
import signal
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

from aioelastic._base.aliases import Environment, StartMethod, StrPath
from aioelastic._base.defaults import DEATH_SIGNAL, DRAIN_TIMEOUT, SHUTDOWN_TIMEOUT
from aioelastic._contexts.checks import checked_method
from aioelastic._contexts.context import PContext
from aioelastic._errors.exceptions import RankStartError, SpecificationTypeError
from aioelastic._logs.group_logs import StreamName
from aioelastic._logs.lines import FilterEntry
from aioelastic._logs.specs import LogsSpecs
from aioelastic._numa.options import NumaOptions
from aioelastic._processes.command_line import check_cwd, rank_arguments
from aioelastic._processes.fork_server import start_resource_tracker
from aioelastic._processes.function_calls import (
    Handover,
    Preparation,
    PreparedCall,
    described,
    preparation,
    prepare_call,
    refuse_while_importing_main,
)
from aioelastic._processes.function_rank import FunctionRank, start_function_rank
from aioelastic._processes.function_starts import SERVED_DESCRIPTORS, FunctionStart
from aioelastic._processes.rank_process import RankProcess


class MultiprocessContext(PContext):
    """A group of ranks that call a function; `start_processes` makes it from an entrypoint that can be called.

    Each rank is a process of `multiprocessing`, with its pickling, its treatment of the main module, and its queues,
    locks and events as arguments.

    Args:
        name: A short name of the group, shown before its lines.
        entrypoint: The function, plain or ``async def``.
        args: Rank -> its arguments.
        envs: Rank -> its variables on top of the supervisor's own; ``None`` for none.
        start_method: "spawn", "fork" or "forkserver".
        logs_specs: Where the ranks' output goes.
        log_line_prefixes: Rank -> what stands before its lines on the console.
        numa_options: Which CPUs each rank is bound to before it runs a line of its own; no binding by default.
        duplicate_stdout_filters: What the filtered copy of stdout looks for.
        duplicate_stderr_filters: What the filtered copy of stderr looks for.
        cwd: The ranks' working directory; the supervisor's own when not given.
        death_sig: What the ranks get first when the group ends.
        shutdown_timeout: Seconds from there to SIGKILL.
        drain_timeout: Seconds from a rank's exit to the end of its logs, although somebody still holds its pipe.
        orphan_guard: Have the ranks ended by a helper process if this program is killed.
        sweep_descendants: End what has left the ranks' sessions, too.

    Raises:
        SpecificationError: An argument that cannot be used; its subclasses say of which kind.
    """

    _descriptors_per_rank = 4
    """The handle, the pipe of the value, that of the call, and that of the exit status (fork server)."""

    def __init__(
        self,
        name: str,
        entrypoint: Callable[..., Any],
        args: Mapping[int, Any],
        envs: Mapping[int, Environment] | None,
        start_method: str,
        logs_specs: LogsSpecs,
        log_line_prefixes: Mapping[int, str] | None = None,
        numa_options: NumaOptions | None = None,
        duplicate_stdout_filters: Sequence[FilterEntry] | None = None,
        duplicate_stderr_filters: Sequence[FilterEntry] | None = None,
        *,
        cwd: StrPath | None = None,
        death_sig: signal.Signals = DEATH_SIGNAL,
        shutdown_timeout: float = SHUTDOWN_TIMEOUT,
        drain_timeout: float = DRAIN_TIMEOUT,
        orphan_guard: bool = True,
        sweep_descendants: bool = True,
    ) -> None:
        if not callable(entrypoint):
            raise SpecificationTypeError(f"entrypoint must be a function, not {type(entrypoint).__name__}")
        super().__init__(
            name,
            entrypoint,
            args,
            envs,
            logs_specs,
            log_line_prefixes,
            numa_options,
            duplicate_stdout_filters,
            duplicate_stderr_filters,
            death_sig=death_sig,
            shutdown_timeout=shutdown_timeout,
            drain_timeout=drain_timeout,
            orphan_guard=orphan_guard,
            sweep_descendants=sweep_descendants,
        )
        self._method = checked_method(start_method)
        self._calls = {rank: (entrypoint, rank_arguments(self._args[rank], rank)) for rank in range(self.nprocs)}
        self._cwd_asked = cwd
        self._preparation: Preparation | None = None
        self._prepared: dict[int, PreparedCall] = {}
        self._ranks: dict[int, FunctionRank] = {}
        # A thread that writes logs while the next rank is forked is none of the program's, and can hold any lock.
        self._logs_wait_for_start = self._method == "fork"

    @property
    def start_method(self) -> StartMethod:
        """How the ranks are started."""
        return self._method

    def _prepare(self) -> None:
        refuse_while_importing_main()
        try:
            self._cwd = check_cwd(self._cwd_asked)
        except OSError as error:
            raise RankStartError(0, self._command(0), os.fspath(self._cwd_asked or ""), error) from error
        if self._method == "fork":
            _load_for_forks()
            return
        start_resource_tracker()
        self._preparation = preparation(self._cwd)
        for rank, (function, args) in self._calls.items():
            handover = Handover(self._method, SERVED_DESCRIPTORS)
            self._prepared[rank] = prepare_call(function, args, rank, handover, self._preparation.main)

    async def _start_rank(
        self, rank: int, stdio: Mapping[StreamName, int | None], on_exit: Callable[[], None]
    ) -> RankProcess:
        call = self._calls[rank] if self._preparation is None else self._prepared.pop(rank)

        def describe(value: int) -> FunctionStart:
            return FunctionStart(
                name=f"{self.name}{rank}",
                call=call,
                preparation=self._preparation,
                environment=self._environment(rank),
                cwd=self._cwd,
                stdout=stdio["stdout"],
                stderr=stdio["stderr"],
                value=value,
                bind=self._binding(rank),
            )

        try:
            started = await start_function_rank(self._method, describe, rank, on_exit)
        except OSError as error:
            raise RankStartError(rank, self._command(rank), self._cwd, error) from error
        self._ranks[rank] = started
        return started

    def _return_values(self) -> dict[int, Any]:
        return {rank: each.value for rank, each in self._ranks.items() if each.has_value}

    def _command(self, rank: int) -> tuple[str, ...]:
        del rank  # all have the same one
        return (described(self._entrypoint),)


def _load_for_forks() -> None:
    """Load what every forked rank needs once, before the fork."""
    for module in ("ctypes", "faulthandler"):
        with contextlib.suppress(ImportError):
            import_module(module)
