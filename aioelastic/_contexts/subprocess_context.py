"""A group of commands."""

import os
import signal
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from aioelastic._base.aliases import Environment, StrPath
from aioelastic._base.defaults import DEATH_SIGNAL, DRAIN_TIMEOUT, SHUTDOWN_TIMEOUT
from aioelastic._contexts.context import PContext
from aioelastic._errors.exceptions import RankStartError
from aioelastic._logs.group_logs import StreamName
from aioelastic._logs.lines import FilterEntry
from aioelastic._logs.specs import LogsSpecs
from aioelastic._numa.options import NumaOptions
from aioelastic._processes.command_line import check_cwd, command_line, find_command
from aioelastic._processes.rank_process import RankProcess
from aioelastic._processes.signal_state import needs_exec_step
from aioelastic._processes.subprocess_handler import SubprocessHandler, start_command


class SubprocessContext(PContext):
    """A group of ranks that run a command; `start_processes` makes it from an entrypoint that is text or a path.

    Args:
        name: A short name of the group, shown before its lines.
        entrypoint: The program: a path, or a name looked up in each rank's PATH.
        args: Rank -> its arguments.
        envs: Rank -> its variables on top of the supervisor's own; ``None`` for none.
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

    def __init__(
        self,
        name: str,
        entrypoint: StrPath,
        args: Mapping[int, Any],
        envs: Mapping[int, Environment] | None,
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
        ranks = range(self.nprocs)
        self._commands = {rank: command_line(entrypoint, self._args[rank], rank) for rank in ranks}
        self._cwd_asked = cwd
        self._by_step: bool | None = None
        self._handlers: dict[int, SubprocessHandler] = {}

    @property
    def subprocess_handlers(self) -> dict[int, SubprocessHandler]:
        """The handlers of the started ranks, by rank."""
        return dict(self._handlers)

    def _prepare(self) -> None:
        rank = 0
        try:
            self._cwd = check_cwd(self._cwd_asked)
            searched: set[str | None] = set()
            for rank, command in self._commands.items():
                environment = self._environment(rank)
                # All have the same program; what is found differs with the place that is searched.
                if environment.get("PATH") not in searched:
                    find_command(command[0], environment, self._cwd)
                    searched.add(environment.get("PATH"))
        except OSError as error:
            asked = None if self._cwd_asked is None else os.fspath(self._cwd_asked)
            raise RankStartError(rank, self._commands.get(rank, ()), asked, error) from error

    def _command(self, rank: int) -> tuple[str, ...]:
        return self._commands[rank]

    async def _start_rank(
        self, rank: int, stdio: Mapping[StreamName, int | None], on_exit: Callable[[], None]
    ) -> RankProcess:
        if self._by_step is None:
            self._by_step = needs_exec_step()
        handler = await start_command(
            self._commands[rank],
            self._environment(rank),
            local_rank=rank,
            cwd=self._cwd,
            stdout=stdio["stdout"],
            stderr=stdio["stderr"],
            by_step=self._by_step,
            bind=self._binding(rank),
            on_exit=on_exit,
        )
        self._handlers[rank] = handler
        return handler
