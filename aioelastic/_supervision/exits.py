"""What an exit means: its cause, and whether it is a failure (pure)."""

import enum
from collections.abc import Collection, Container, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from aioelastic._base.signals import signal_name
from aioelastic._processes.rank_process import ExitStatus


class ExitCause(enum.Enum):
    """Why a rank ended."""

    ENDED = "ended by itself"
    """It exited, with whatever code."""

    STOPPED = "stopped by us"
    """It ended after the supervisor had signalled it."""

    KILLED = "killed by a signal from elsewhere"
    """It died of a signal that the supervisor had not sent (the out-of-memory killer, a crash, a person)."""

    UNKNOWN = "its status was taken by another part of the program"
    """Somebody else reaped it, and the kernel kept no copy of the status."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankExit:
    """How one rank ended.

    Attributes:
        pid: The process id it had.
        exitcode: Its exit code, minus the signal's number, or ``None`` when nobody knows (`ExitCause.UNKNOWN`).
        signal: The name of the signal it died of, or ``None``.
        cause: Why it ended.
        start_time: When it was started (seconds since the epoch).
        end_time: When its exit was seen (seconds since the epoch).
        peak_memory: Largest resident size of the rank or of a child it waited for (bytes), or ``None`` where it is not
            known: it has to be more than the supervisor's own.
        cpu_time: Processor time of the rank and the children it waited for (seconds), or ``None`` where not known:
            somebody else reaped the rank.
        reaped_elsewhere: Another part of the program reaped it (``os.wait()``, a handler of SIGCHLD).
    """

    pid: int
    exitcode: int | None
    signal: str | None
    cause: ExitCause
    start_time: float
    end_time: float
    peak_memory: int | None = None
    cpu_time: float | None = None
    reaped_elsewhere: bool = False


class Ending(NamedTuple):
    """What was seen of a rank's end, before it is judged.

    Attributes:
        pid: The process id it had.
        status: What the system told.
        sent: Signals we had sent to it while it was alive.
        stopped_at: When we sent the first one (seconds since the epoch), or ``None``.
        start_time: When it was started (seconds since the epoch).
        end_time: When its exit was seen (seconds since the epoch).
    """

    pid: int
    status: ExitStatus
    sent: frozenset[int]
    stopped_at: float | None
    start_time: float
    end_time: float


def judge(ending: Ending) -> RankExit:
    """Say what an ending means."""
    code = ending.status.code
    died_of = -code if code is not None and code < 0 else None
    return RankExit(
        pid=ending.pid,
        exitcode=code,
        signal=None if died_of is None else signal_name(died_of),
        cause=_cause(code, died_of, ending.sent),
        start_time=ending.start_time,
        end_time=ending.end_time,
        peak_memory=ending.status.peak_memory,
        cpu_time=ending.status.cpu_time,
        reaped_elsewhere=ending.status.reaped_elsewhere,
    )


def _cause(code: int | None, died_of: int | None, sent: Collection[int]) -> ExitCause:
    if sent and (died_of is None or died_of in sent):
        return ExitCause.STOPPED
    if code is None:
        return ExitCause.UNKNOWN
    return ExitCause.ENDED if died_of is None else ExitCause.KILLED


def is_failure(ending: Ending) -> bool:
    """Tell whether an ending by itself is a failure: not 0 or without a value, and before we asked the rank to stop."""
    return not ending.sent and (ending.status.code != 0 or bool(ending.status.problem))


def stopped_ranks(exits: Mapping[int, RankExit], failures: Container[int]) -> list[int]:
    """Give the ranks that were merely stopped, without those that had failed before."""
    return [rank for rank, each in exits.items() if each.cause is ExitCause.STOPPED and rank not in failures]


def failed_before_stop(ending: Ending, recorded_at: float, precision: float) -> bool:
    """Tell whether a rank that we stopped had failed before, by the time in its error file.

    A rank can have raised its exception and still hang in its exit handlers when the group is stopped; or raise it
    because it is stopped. The time tells the two apart; a file from before the rank's start is somebody else's.

    Args:
        ending: The rank's end.
        recorded_at: Time of its error file's record (seconds since the epoch), rounded down.
        precision: How much that can be earlier than the true time: a second for files of torch's, 0 for ours.
    """
    latest = recorded_at + precision
    return ending.stopped_at is not None and ending.start_time <= latest < ending.stopped_at
