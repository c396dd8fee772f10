"""What is alive of groups that should have ended: found by their sessions and tokens, named, and killed."""

import shlex
import signal
import time
from collections.abc import Sequence
from typing import Final

import psutil

from aioelastic._base.defaults import REAP_TIMEOUT
from aioelastic._contexts.context import PContext
from aioelastic._processes.members import Member, signal_member
from aioelastic._processes.system_table import SystemTable
from aioelastic._processes.tokens import group_and_rank
from aioelastic._supervision.states import GroupState

_LOOK_AGAIN: Final = 0.01
"""Seconds between two looks at what was killed."""

_UNDER_SUPERVISION: Final = {GroupState.STARTING, GroupState.RUNNING, GroupState.STOPPING}


def end_leftovers(contexts: Sequence[PContext]) -> list[str]:
    """Kill what is alive of some groups that were closed, or that nobody can close any more.

    Returns:
        Words about each group of which something was alive.
    """
    if not (found := _find(contexts)):
        return []
    # Before they are killed: a process that is gone has no command line.
    lines = {context: _lines(context, found) for context in contexts}
    ended = _kill(contexts, found)
    return [_words(context, each, ended=ended) for context, each in lines.items() if each]


def _find(contexts: Sequence[PContext]) -> list[Member]:
    leaders: dict[int, bool] = {}
    for context in contexts:
        if (group := context._group) is not None:  # noqa: SLF001 - nobody else has a use for the ranks' handles
            leaders |= {process.pid: process.has_exited() for process in group.processes.values()}
    return SystemTable().members(leaders, {_token(context) for context in contexts})


def _kill(contexts: Sequence[PContext], found: Sequence[Member]) -> bool:
    """Kill until nothing is found; tell whether that is so after a while."""
    deadline = time.monotonic() + REAP_TIMEOUT
    while found and time.monotonic() < deadline:
        for member in found:
            signal_member(member, signal.SIGKILL)
        time.sleep(_LOOK_AGAIN)
        found = _find(contexts)
    return not found


def _lines(context: PContext, found: Sequence[Member]) -> list[str]:
    """Give a line for each process of a group."""
    ranks = {pid: rank for rank, pid in context.pids().items()}
    lines = []
    for member in found:
        group, rank = group_and_rank(member.token) if member.token else ("", ranks.get(member.session, -1))
        if (group == _token(context) or member.session in ranks) and (command := _command(member.pid)):
            lines.append(f"  rank {rank}, pid {member.pid}: {command}")
    return lines


def _command(pid: int) -> str:
    try:
        return shlex.join(psutil.Process(pid).cmdline())
    except psutil.Error:
        return ""  # it has ended by itself, just now


def _words(context: PContext, lines: Sequence[str], *, ended: bool) -> str:
    if context.state in _UNDER_SUPERVISION:
        what = f"{context!r} could not be closed: its event loop was closed, or is not running. "
    else:
        what = f"{context!r} left something behind (see sweep_descendants). "
    count = "1 process was" if len(lines) == 1 else f"{len(lines)} processes were"
    after = "killed now" if ended else "and SIGKILL does not end all of them"
    return "\n".join([f"{what}{count} alive, {after}:", *lines])


def _token(context: PContext) -> str:
    return context._token  # noqa: SLF001 - see above
