"""The text that tells a person why a group failed; pure functions on values that do not change."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from aioelastic._base.counts import counted
from aioelastic._errors.error_files import shortened
from aioelastic._errors.log_tail import printable

if TYPE_CHECKING:
    from aioelastic._errors.process_failure import ProcessFailure

ROOT_TEXT_LIMIT: Final = 16 * 1024
"""Characters shown of the root cause's traceback or message."""

OTHER_TEXT_LIMIT: Final = 2 * 1024
"""Characters shown of another failure's traceback or message."""

OTHERS_IN_FULL: Final = 8
"""Other failures shown with all they have; the rest get a line each, so that 1000 ranks stay readable."""


def root_cause_first(failures: "Mapping[int, ProcessFailure]") -> "dict[int, ProcessFailure]":
    """Order failures by time; those of the same time stay in the order given.

    Args:
        failures: Rank to failure. A supervisor gives them in the order in which it saw the ranks end.

    Returns:
        The same failures, the root cause first.
    """
    return dict(sorted(failures.items(), key=lambda item: item[1].timestamp))


def describe_failures(
    name: str,
    host: str,
    failures: "Mapping[int, ProcessFailure]",
    stopped: Iterable[int] = (),
    history: Sequence[str] = (),
) -> str:
    """Write the report of a group that failed.

    Args:
        name: The group's name.
        host: The machine it ran on.
        failures: Rank to failure, the root cause first; at least one.
        stopped: Ranks that were stopped because of them.
        history: A line for each attempt that led to it.

    Returns:
        Headline, root cause, other failures, one line for the stopped ranks, and the attempts if there were several.
    """
    (root_rank, root), *others = failures.items()
    headline = f"{printable(name)} failed on {host}: {counted(len(failures), 'rank')} failed"
    parts = [
        f"{headline}, first rank {root_rank}",
        _section("Root cause", root_rank, root, host, ROOT_TEXT_LIMIT),
    ]
    parts += [
        _section("Other failure", rank, failure, host, OTHER_TEXT_LIMIT) for rank, failure in others[:OTHERS_IN_FULL]
    ]
    brief = [_brief(rank, failure) for rank, failure in others[OTHERS_IN_FULL:]]
    if brief:
        parts.append("\n".join(["Further failures:", *brief]))
    if ranks := sorted(set(stopped)):
        parts.append(f"Stopped because of that: {counted(len(ranks), 'rank')} ({rank_ranges(ranks)})")
    if len(history) > 1:
        parts.append("\n".join([f"{counted(len(history), 'attempt')}:", *(f"  {printable(line)}" for line in history)]))
    return "\n\n".join(parts)


def rank_ranges(ranks: Iterable[int]) -> str:
    """Write ranks briefly.

    Args:
        ranks: Ranks, in ascending order.

    Returns:
        Runs joined by a dash.

    Example:
        >>> rank_ranges([0, 1, 2, 5, 7, 8])
        '0-2, 5, 7-8'
    """
    runs: list[list[int]] = []
    for rank in ranks:
        if runs and rank == runs[-1][1] + 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    return ", ".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)


def describe_exit(failure: "ProcessFailure") -> str:
    """Write how a rank ended.

    Args:
        failure: The failure.

    Returns:
        ``"1"``, ``"-9 (SIGKILL)"`` or ``"unknown"``.
    """
    if failure.exitcode is None:
        return "unknown"
    return f"{failure.exitcode} ({failure.signal_name()})" if failure.exitcode < 0 else str(failure.exitcode)


def _section(title: str, rank: int, failure: "ProcessFailure", host: str, limit: int) -> str:
    text = printable(shortened(failure.traceback or failure.message, limit))
    return "\n".join(
        [
            f"{title}: {_rank(rank, failure)}",
            f"  time      : {failure.timestamp_isoformat()}",
            f"  host      : {host}",
            f"  exit code : {describe_exit(failure)}",
            f"  error file: {printable(failure.error_file)}",
            "  traceback :" if failure.traceback else "  message   :",
            *(f"    {line}".rstrip() for line in text.strip("\n").split("\n")),
        ]
    )


def _brief(rank: int, failure: "ProcessFailure") -> str:
    first_line = printable(failure.message[:200]).strip().partition("\n")[0]
    return f"  {_rank(rank, failure)}: exit code {describe_exit(failure)}: {first_line}"


def _rank(rank: int, failure: "ProcessFailure") -> str:
    local = "" if rank == failure.local_rank else f"local rank {failure.local_rank}, "
    return f"rank {rank} ({local}pid {failure.pid})"
