"""A group as the library is asked for it."""

import inspect
import marshal
import os
import signal
import sys
from pathlib import Path
from typing import Any

import aioelastic
from aioelastic import DefaultLogsSpecs, MultiprocessContext, Std, SubprocessContext, start_processes
from soaking.entries import journal_path
from soaking.output import WORD
from soaking.plans import COMMAND, GroupPlan
from soaking.rank import play

_GUARDS = ("orphan_guard", "sweep_descendants")
_PACKAGE = str(Path(aioelastic.__file__).parent.parent)
_PROGRAM = str(Path(__file__).with_name("rank.py"))


def start_arguments(plan: GroupPlan, directory: Path, mark: str) -> dict[str, Any]:
    """Give the arguments for `start_processes`, or for a context that is started later.

    Args:
        plan: The group.
        directory: Where the round has its files.
        mark: What stands in each rank's environment, for people who look at processes.
    """
    ranks = range(len(plan.ranks))
    words = {rank: _words(plan, rank, directory) for rank in ranks}
    known = inspect.signature(start_processes).parameters
    command = plan.method == COMMAND
    filters = [WORD.decode()] if plan.filtered else None
    return {
        "name": plan.name,
        "entrypoint": sys.executable if command else play,
        "args": {rank: ("-S", "-E", _PROGRAM, words[rank]) if command else (words[rank],) for rank in ranks},
        "envs": {rank: {"SOAK_ROUND": mark} for rank in ranks},
        "logs_specs": DefaultLogsSpecs(
            directory / f"{plan.name}logs" if plan.keeps_logs else os.devnull,
            {rank: Std(plan.redirects[rank]) for rank in ranks},
            {rank: Std(plan.tees[rank]) for rank in ranks},
            plan.shown,
        ),
        "duplicate_stdout_filters": filters,
        "duplicate_stderr_filters": filters,
        "death_sig": signal.Signals(plan.death_signal),
        "shutdown_timeout": plan.shutdown_timeout,
        "drain_timeout": plan.drain_timeout,
        **({} if command else {"start_method": plan.method}),
        **{name: plan.guarded for name in _GUARDS if name in known},
    }


def unstarted(plan: GroupPlan, arguments: dict[str, Any]) -> SubprocessContext | MultiprocessContext:
    """Make a context that is still to be started."""
    return (SubprocessContext if plan.method == COMMAND else MultiprocessContext)(**arguments)


def _words(plan: GroupPlan, rank: int, directory: Path) -> str:
    """Put a rank's plan into one word."""
    about = plan.ranks[rank]
    words = {name: getattr(about, name) for name in about.__slots__}
    words["kin"] = [{name: getattr(each, name) for name in each.__slots__} for each in about.kin]
    words |= {"journal": str(journal_path(directory, plan.name, rank)), "package": _PACKAGE}
    return marshal.dumps(words | {"nursery": str(directory / "nursery")}).hex()
