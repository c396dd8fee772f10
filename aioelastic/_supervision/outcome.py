"""How a group ended: the exits of its ranks, and what of them was a failure."""

from collections.abc import Mapping
from typing import NamedTuple

from aioelastic._errors.error_files import read_error_file
from aioelastic._errors.process_failure import ProcessFailure
from aioelastic._errors.report import root_cause_first
from aioelastic._supervision.exits import Ending, RankExit, failed_before_stop, is_failure, judge


class GroupOutcome(NamedTuple):
    """How a group ended.

    Attributes:
        exits: Rank -> its exit, in the order of the exits.
        failures: Rank -> its failure, root cause first.
        survivors: Rank -> pids that SIGKILL did not end.
    """

    exits: dict[int, RankExit]
    failures: dict[int, ProcessFailure]
    survivors: dict[int, list[int]]


def explain(
    endings: Mapping[int, Ending],
    survivors: dict[int, list[int]],
    error_files: Mapping[int, str],
    stderr_files: Mapping[int, str],
) -> GroupOutcome:
    """Judge the endings; reads error files and log ends of failed and stopped ranks (blocking).

    Args:
        endings: Rank -> how its process ended, in the order of the exits.
        survivors: Rank -> pids that SIGKILL did not end.
        error_files: Rank -> path of its error file, or ``""``.
        stderr_files: Rank -> path of its stderr log, or ``""``.
    """
    failures = {
        rank: _failure(rank, ending, error_files.get(rank, ""), stderr_files.get(rank, ""))
        for rank, ending in endings.items()
        if _has_failed(ending, error_files.get(rank, ""))
    }
    return GroupOutcome(
        exits={rank: judge(ending) for rank, ending in endings.items()},
        failures=root_cause_first(failures),
        survivors=survivors,
    )


def _has_failed(ending: Ending, error_file: str) -> bool:
    if is_failure(ending) or not ending.sent or ending.status.code == 0:
        return is_failure(ending)
    found = read_error_file(error_file)
    if found is None or found.timestamp is None:
        return False
    return failed_before_stop(ending, found.timestamp, 0 if found.subsecond else 1)


def _failure(rank: int, ending: Ending, error_file: str, stderr_file: str) -> ProcessFailure:
    return ProcessFailure(
        rank,
        ending.pid,
        ending.status.code,
        error_file,
        stderr_file=stderr_file,
        started_at=ending.start_time,
        exited_at=ending.end_time,
        reason=ending.status.problem,
        report=ending.status.report,
    )
