"""From options to what is run: `make_plan`; no process is started here."""

import os
import signal
import sys
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from aioelastic._agent.worker_spec import WorkerSpec
from aioelastic._base.aliases import EnvValue
from aioelastic._base.defaults import SHUTDOWN_TIMEOUT
from aioelastic._cli.device_counts import count_ranks
from aioelastic._cli.named_logs_specs import make_logs_specs
from aioelastic._cli.run_options import RunOptions
from aioelastic._cli.run_places import choose_place
from aioelastic._errors.exceptions import SpecificationError
from aioelastic._logs.specs import LogsSpecs
from aioelastic._logs.std import Std
from aioelastic._numa.options import AffinityMode, NumaOptions

_PREFIX_TEMPLATE: Final = "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE"

_NO_EFFECT: Final = {
    "monitor_interval": "ends of ranks are seen as they happen, nothing is polled",
    "start_method": "it is for functions, and the ranks are commands",
    "event_log_handler": "events are written to events.jsonl in the log directory",
}
"""Options that never have an effect here, and why."""

_NOT_READ: Final = {
    "TORCHELASTIC_HEALTH_CHECK_PORT": "there is no health check to ask; watch the process",
    "TORCHELASTIC_ENABLE_FILE_TIMER": "there are no timers that ranks could set",
}
"""Variables that ask torchrun for what is not there here, and why."""


class RunPlan(NamedTuple):
    """What ``aioelastic run`` is about to do.

    Attributes:
        spec: The run.
        signals: What ends the run, passed on to the ranks.
        notes: Remarks for the person, one line each.
        colour: Whether there may be colours.
    """

    spec: WorkerSpec
    signals: tuple[signal.Signals, ...]
    notes: tuple[str, ...]
    colour: bool


def make_plan(options: RunOptions, environ: Mapping[str, str], *, on_terminal: bool = False) -> RunPlan:
    """Check the options together, and say what they come to.

    Args:
        options: The options.
        environ: The variables.
        on_terminal: Whether the run is shown on a terminal. Then output is teed unless the options say where it goes:
            ranks that write to one terminal by themselves would tear each other's lines.

    Returns:
        The plan.

    Raises:
        SpecificationError: The options do not fit together, or this machine; in one line, with what to do.
        LogDirectoryError: ``--log-dir`` is a file.

    Example:
        >>> from aioelastic._cli.run_options import parse
        >>> plan = make_plan(parse(["--nproc-per-node=2", "--no-python", "date", "-u"], {}), {"OMP_NUM_THREADS": "1"})
        >>> plan.spec.entrypoint, plan.spec.args, plan.spec.local_world_size, plan.notes
        ('date', ('-u',), 2, ())
    """
    entrypoint, args = _command(options, environ)
    ranks, count_notes = count_ranks(options.nproc_per_node, environ)
    rendezvous, place_notes = choose_place(options, ranks, environ)
    logs_specs, log_notes = _logs_specs(options, ranks, on_terminal=on_terminal)
    timeout = SHUTDOWN_TIMEOUT if options.shutdown_timeout is None else options.shutdown_timeout
    spec = WorkerSpec(
        entrypoint=entrypoint,
        args=args,
        role=options.role,
        local_world_size=ranks,
        envs=_variables(options, environ),
        max_restarts=options.max_restarts,
        rendezvous=rendezvous,
        logs_specs=logs_specs,
        log_line_prefix_template=_prefix_template(environ),
        numa_options=None if options.numa_binding is None else NumaOptions(AffinityMode(options.numa_binding)),
        duplicate_stdout_filters=options.duplicate_stdout_filters,
        duplicate_stderr_filters=options.duplicate_stderr_filters,
        virtual_local_rank=options.virtual_local_rank,
        shutdown_timeout=timeout,
    )
    notes = (*place_notes, *log_notes, *_without_effect(options, environ), *count_notes, *_threads(ranks, environ))
    return RunPlan(spec=spec, signals=options.signals_to_handle, notes=notes, colour=not options.no_color)


def _command(options: RunOptions, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """Give the program that each rank is, and its arguments.

    ``--run-path`` lets torchrun's ranks, which it makes as copies of itself for that, read the script without another
    interpreter. Ranks are commands here and have an interpreter each, so it is the plain way of running a script.
    """
    as_module = options.module and not options.run_path
    as_program = options.no_python and not options.run_path
    if as_module and as_program:
        raise SpecificationError(
            f"{options.source('module')} is for Python's modules and {options.source('no_python')} for other programs: "
            "give one of them"
        )
    if as_program:
        return options.script, options.script_args
    if not as_module:
        _require_script(options.script)
    interpreter = environ.get("PYTHON_EXEC") or sys.executable
    return interpreter, ("-u", *(["-m"] if as_module else []), options.script, *options.script_args)


def _require_script(script: str) -> None:
    # Each rank may have one of its own; those come to light in the ranks.
    if "${local_rank}" not in script and not os.path.exists(script):  # noqa: PTH110 - see _base/paths
        raise SpecificationError(
            f"there is no script {script!r} (from {_working_directory()}): give its path, -m before a module's name, "
            "or --no-python before another program"
        )


def _working_directory() -> str:
    try:
        return repr(os.getcwd())  # noqa: PTH109 - see _base/paths
    except FileNotFoundError:
        return "a directory that was removed"


def _variables(options: RunOptions, environ: Mapping[str, str]) -> dict[str, EnvValue]:
    """Give the variables of all ranks that the command line is the reason for."""
    names = ",".join(each.name for each in options.signals_to_handle)
    variables: dict[str, EnvValue] = {"TORCHELASTIC_SIGNALS_TO_HANDLE": names}
    if "PYTHONUNBUFFERED" not in environ:
        # -u is for the ranks; their own Python children, and a Python behind --no-python, need the variable.
        variables["PYTHONUNBUFFERED"] = "1"
    return variables


def _prefix_template(environ: Mapping[str, str]) -> str | None:
    template = environ.get(_PREFIX_TEMPLATE) or None
    if template is not None and ("\n" in template or "\r" in template):
        raise SpecificationError(f"{_PREFIX_TEMPLATE} has a line end: it stands before each line, so take that out")
    return template


def _logs_specs(options: RunOptions, ranks: int, *, on_terminal: bool) -> tuple[LogsSpecs, tuple[str, ...]]:
    """Say where the output goes; what is said of ranks that this node does not have is left out, with a remark."""
    notes: list[str] = []

    def existing(field: str, named: Mapping[int, Std] | frozenset[int]) -> list[int]:
        extra = sorted(rank for rank in named if rank >= ranks)
        if extra:
            listed = f"rank{'' if len(extra) == 1 else 's'} {', '.join(map(str, extra))}"
            notes.append(f"{options.source(field)} names local {listed}, which this node does not have")
        return [rank for rank in named if rank < ranks]

    def streams(field: str, asked: Std | dict[int, Std]) -> Std | dict[int, Std]:
        return asked if isinstance(asked, Std) else {rank: asked[rank] for rank in existing(field, asked)}

    redirects, tee, shown = options.redirects, options.tee, options.local_ranks_filter
    if on_terminal and not {"redirects", "tee"} & set(options.given):
        tee = Std.ALL
    specs = make_logs_specs(
        options.logs_specs,
        log_dir=options.log_dir,
        redirects=streams("redirects", redirects),
        tee=streams("tee", tee),
        local_ranks_filter=None if shown is None else frozenset(existing("local_ranks_filter", shown)),
    )
    return specs, tuple(notes)


def _without_effect(options: RunOptions, environ: Mapping[str, str]) -> Iterator[str]:
    for field, reason in _NO_EFFECT.items():
        if field in options.given:
            yield f"{options.source(field)} has no effect: {reason}"
    if options.run_path:
        for field in ("module", "no_python"):
            if field in options.given:
                yield f"{options.source(field)} has no effect: {options.source('run_path')} says what the script is"
    for name, reason in _NOT_READ.items():
        if environ.get(name, "0") not in {"", "0"}:
            yield f"{name} has no effect: {reason}"


def _threads(ranks: int, environ: Mapping[str, str]) -> Iterator[str]:
    if ranks > 1 and "OMP_NUM_THREADS" not in environ:
        yield "OMP_NUM_THREADS is not set, and each rank gets 1: set it to what suits the script"
