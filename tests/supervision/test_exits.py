"""What an exit means, judged from frozen values."""

import signal

import pytest

from aioelastic import ExitCause
from aioelastic._processes.rank_process import ExitStatus
from aioelastic._supervision.exits import Ending, failed_before_stop, is_failure, judge

TERM = int(signal.SIGTERM)
KILL = int(signal.SIGKILL)


def ending(code: int | None, *sent: int, elsewhere: bool = False) -> Ending:
    """Give the end of a rank that lived from 100 to 130 and was, if at all, stopped at 120."""
    return Ending(
        pid=77,
        status=ExitStatus(code=code, reaped_elsewhere=elsewhere),
        sent=frozenset(sent),
        stopped_at=120.0 if sent else None,
        start_time=100.0,
        end_time=130.0,
    )


@pytest.mark.parametrize(
    ("seen", "cause"),
    [
        (ending(0), ExitCause.ENDED),
        (ending(3), ExitCause.ENDED),
        (ending(-KILL), ExitCause.KILLED),
        (ending(-TERM), ExitCause.KILLED),
        (ending(None, elsewhere=True), ExitCause.UNKNOWN),
        (ending(3, elsewhere=True), ExitCause.ENDED),
        (ending(-TERM, TERM), ExitCause.STOPPED),
        (ending(-KILL, TERM, KILL), ExitCause.STOPPED),
        (ending(0, TERM), ExitCause.STOPPED),
        (ending(1, TERM), ExitCause.STOPPED),
        (ending(None, TERM), ExitCause.STOPPED),
        (ending(-KILL, TERM), ExitCause.KILLED),
        (ending(-signal.SIGSEGV, TERM, KILL), ExitCause.KILLED),
    ],
)
def test_the_cause_follows_from_what_was_sent_and_what_it_died_of(seen: Ending, cause: ExitCause) -> None:
    """A rank is stopped by us only if it left after our signal, and not by a signal we never sent."""
    assert judge(seen).cause is cause


def test_a_judged_exit_says_all_that_was_seen() -> None:
    """The pid, code, signal's name and times are those of the ending."""
    exited = judge(ending(-TERM, TERM, elsewhere=True))

    assert (exited.pid, exited.exitcode, exited.signal) == (77, -TERM, "SIGTERM")
    assert (exited.start_time, exited.end_time) == (100.0, 130.0)
    assert exited.reaped_elsewhere


@pytest.mark.parametrize("code", [0, 3, None])
def test_an_exit_without_a_signal_names_none(code: int | None) -> None:
    """Only a death by signal has a signal."""
    assert judge(ending(code)).signal is None


def test_a_signal_without_a_name_is_still_named() -> None:
    """Real-time signals come out in words."""
    assert judge(ending(-(signal.SIGRTMIN + 3))).signal == "SIGRTMIN+3"


@pytest.mark.parametrize(
    ("seen", "failed"),
    [
        (ending(0), False),
        (ending(3), True),
        (ending(-KILL), True),
        (ending(None, elsewhere=True), True),
        (ending(0, TERM), False),
        (ending(3, TERM), False),
        (ending(-TERM, TERM), False),
        (ending(-signal.SIGSEGV, TERM), False),
    ],
)
def test_a_failure_is_any_end_but_zero_before_we_asked(seen: Ending, failed: bool) -> None:
    """What a rank does after our signal is no failure by itself; an unknown end is one, for nobody saw a 0."""
    assert is_failure(seen) is failed


@pytest.mark.parametrize(
    ("recorded_at", "precision", "failed"),
    [
        (119.9, 0, True),
        (120.0, 0, False),
        (120.1, 0, False),
        (99.9, 0, False),
        (118.0, 1, True),
        (119.0, 1, False),
        (99.0, 1, True),
        (98.0, 1, False),
    ],
)
def test_a_stopped_rank_had_failed_if_its_record_is_surely_older(
    recorded_at: float, precision: float, failed: bool
) -> None:
    """A record between start and stop is a failure; whole seconds count only where all of the second does."""
    assert failed_before_stop(ending(1, TERM), recorded_at, precision) is failed


def test_a_rank_that_was_not_stopped_did_not_fail_before_it() -> None:
    """Without a stop there is nothing to be before."""
    assert not failed_before_stop(ending(1), 110.0, 0)
