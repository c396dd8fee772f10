"""What a run is to be: `WorkerSpec`."""

import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from aioelastic._agent.rendezvous import Rendezvous
from aioelastic._agent.restarts import Backoff, RestartPolicy
from aioelastic._agent.world_checks import checked_address, checked_number, checked_port
from aioelastic._base.aliases import Environment, StrPath
from aioelastic._base.defaults import DEATH_SIGNAL, DRAIN_TIMEOUT, SHUTDOWN_TIMEOUT
from aioelastic._contexts.checks import check_entrypoint, checked_method, checked_name, checked_seconds, checked_signal
from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._logs.lines import FilterEntry, check_filters
from aioelastic._logs.specs import LogsSpecs
from aioelastic._numa.options import NumaOptions, check_numa_options
from aioelastic._processes.command_line import rank_arguments, rank_environment


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """What an agent runs, how many ranks of it, and what follows a failure.

    The names are PyTorch's where the meaning is the same.

    Attributes:
        entrypoint: The program: a path, or a name looked up in each rank's PATH. Or a function.
        args: Its arguments, the same for every rank; ``${local_rank}`` in a text becomes the rank's number.
        role: The name of the ranks, shown before their lines.
        local_world_size: How many ranks this node runs.
        envs: Variables for every rank; ``None`` as a value removes an inherited one. Those that say a rank's place
            (``RANK``, ``WORLD_SIZE``, ...) are the agent's.
        max_restarts: How many times a failed group is run again.
        backoff: How long each restart waits.
        healthy_after: Seconds that an attempt has to run for the restarts before it to be forgotten; ``None`` for
            never.
        rendezvous: Tells the node's place in the world before each attempt; one node of its own when not given.
        logs_specs: Where the output goes; the console when not given. One object serves all attempts.
        log_line_prefix_template: What stands before a rank's lines on the console, with ``${role_name}``, ``${rank}``
            and ``${local_rank}``; ``[${role_name}${local_rank}]:`` when not given.
        start_method: For functions only: "spawn", "fork" or "forkserver".
        numa_options: Which CPUs each rank is bound to; no binding by default.
        duplicate_stdout_filters: What the filtered copy of stdout looks for.
        duplicate_stderr_filters: What the filtered copy of stderr looks for.
        master_addr: ``MASTER_ADDR`` of the ranks, in place of what the rendezvous says.
        master_port: ``MASTER_PORT`` of the ranks, in place of what the rendezvous says.
        virtual_local_rank: Each rank is told that it is local rank 0, and sees its own device only
            (``CUDA_VISIBLE_DEVICES``).
        straggler_timeout: Seconds from the first rank that has succeeded to the end of the others, which are stopped
            then without having failed; ``None`` lets all come to their end.
        cwd: The ranks' working directory; the supervisor's own when not given.
        death_sig: What the ranks get first when a group ends.
        shutdown_timeout: Seconds from there to SIGKILL, for all ranks together.
        drain_timeout: Seconds from a rank's exit to the end of its logs, although somebody still holds its pipe.

    Raises:
        SpecificationError: A value that cannot be used; its subclasses say of which kind.

    Example:
        >>> from aioelastic import WorkerSpec
        >>> WorkerSpec(entrypoint="python3", args=("train.py",), local_world_size=2, max_restarts=3).role
        'default'
    """

    entrypoint: StrPath | Callable[..., Any]
    args: Sequence[Any] = ()
    role: str = "default"
    local_world_size: int = 1
    envs: Environment | None = None
    max_restarts: int = 3
    backoff: Backoff = field(default_factory=Backoff)
    healthy_after: float | None = None
    rendezvous: Rendezvous | None = None
    logs_specs: LogsSpecs | None = None
    log_line_prefix_template: str | None = None
    start_method: str = "spawn"
    numa_options: NumaOptions | None = None
    duplicate_stdout_filters: Sequence[FilterEntry] = ()
    duplicate_stderr_filters: Sequence[FilterEntry] = ()
    master_addr: str | None = None
    master_port: int | None = None
    virtual_local_rank: bool = False
    straggler_timeout: float | None = None
    cwd: StrPath | None = None
    death_sig: signal.Signals = DEATH_SIGNAL
    shutdown_timeout: float = SHUTDOWN_TIMEOUT
    drain_timeout: float = DRAIN_TIMEOUT

    def __post_init__(self) -> None:
        checked_name(self.role)
        check_entrypoint(self.entrypoint)
        checked_number("local_world_size", self.local_world_size, 1)
        rank_environment({}, self.envs, 0)
        RestartPolicy(max_restarts=self.max_restarts, backoff=self.backoff, healthy_after=self.healthy_after)
        _check_types(self)
        checked_method(self.start_method)
        check_numa_options(self.numa_options)
        check_filters("duplicate_stdout_filters", self.duplicate_stdout_filters)
        check_filters("duplicate_stderr_filters", self.duplicate_stderr_filters)
        if self.master_port is not None:
            checked_port("master_port", self.master_port)
        if self.straggler_timeout is not None:
            checked_seconds("straggler_timeout", self.straggler_timeout)
        checked_signal("death_sig", self.death_sig)
        checked_seconds("shutdown_timeout", self.shutdown_timeout)
        checked_seconds("drain_timeout", self.drain_timeout)
        # A frozen value does not change because its makings do.
        object.__setattr__(self, "args", rank_arguments(self.args, 0))
        object.__setattr__(self, "envs", None if self.envs is None else dict(self.envs))


def _check_types(spec: WorkerSpec) -> None:
    """Check what is an object of ours, or text."""
    if spec.logs_specs is not None and not isinstance(spec.logs_specs, LogsSpecs):
        raise SpecificationTypeError(f"logs_specs must be a LogsSpecs, not {type(spec.logs_specs).__name__}")
    rendezvous = spec.rendezvous
    if rendezvous is not None and (isinstance(rendezvous, type) or not hasattr(rendezvous, "next_round")):
        what = repr(rendezvous) if isinstance(rendezvous, type) else type(rendezvous).__name__
        raise SpecificationTypeError(f"rendezvous must be an object with a coroutine next_round(), and {what} is none")
    if not isinstance(spec.virtual_local_rank, bool):
        raise SpecificationTypeError(f"virtual_local_rank must be a bool, not {type(spec.virtual_local_rank).__name__}")
    if spec.master_addr is not None:
        checked_address("master_addr", spec.master_addr)
    template = spec.log_line_prefix_template
    if template is not None and not isinstance(template, str):
        raise SpecificationTypeError(f"log_line_prefix_template must be a str, not {type(template).__name__}")
    if template is not None and ("\n" in template or "\r" in template):
        raise SpecificationError("log_line_prefix_template has a line end: a prefix is part of a line")
