"""What is said, and with which status, at the end of a run."""

import signal

import pytest

from aioelastic._agent.rendezvous import WorldInfo
from aioelastic._agent.run_result import Attempt, RunResult
from aioelastic._cli.summary import exit_status, is_worth_telling, summary
from aioelastic._errors.process_failure import ProcessFailure
from aioelastic._supervision.exits import ExitCause, RankExit
from aioelastic._supervision.states import GroupState

WORLD = WorldInfo(
    group_rank=0, group_world_size=1, base_rank=0, world_size=4, master_addr="localhost", master_port=1, run_id="run"
)

TRACEBACK = b"""{"message": {"message": "ValueError: x", "extraInfo": {
    "py_callstack": "Traceback (most recent call last):\\n  File train.py, line 3\\nValueError: x",
    "timestamp": "10"}}}"""


def failure(exitcode: int | None, rank: int = 1) -> ProcessFailure:
    """Give a failure with a traceback."""
    return ProcessFailure(rank, 100 + rank, exitcode, "", report=TRACEBACK, started_at=5, exited_at=12)


def attempt(number: int, state: GroupState, *failures: ProcessFailure) -> Attempt:
    """Give an attempt of 12 seconds."""
    stopped = RankExit(pid=9, exitcode=-15, signal="SIGTERM", cause=ExitCause.STOPPED, start_time=0, end_time=12)
    return Attempt(
        number=number,
        state=state,
        world=WORLD,
        exits={0: stopped} if failures else {},
        failures={each.local_rank: each for each in failures},
        stderrs={0: "", 1: "/logs/run/attempt_0/1/stderr.log"},
        stdouts={0: "", 1: ""},
        start_time=100.0,
        end_time=112.0,
        duration=12.0,
        delay=0.2 if number else 0.0,
    )


def result(*attempts: Attempt, log_dir: str = "/logs/run") -> RunResult:
    """Give the result of a run with these attempts."""
    state = attempts[-1].state
    failures = attempts[-1].failures
    return RunResult(state, {}, failures, attempts=attempts, name="trainer", log_dir=log_dir, duration=84.5)


SUCCEEDED = attempt(0, GroupState.SUCCEEDED)
FAILED = attempt(0, GroupState.FAILED, failure(-9))


def test_a_success_is_a_line_or_two() -> None:
    """It says how long it took and where the logs are, if there are any."""
    assert summary(result(SUCCEEDED)) == "trainer succeeded after 1 min 24 s\nlogs: /logs/run"
    assert summary(result(SUCCEEDED, log_dir="")) == "trainer succeeded after 1 min 24 s"


def test_a_success_after_a_failure_tells_both() -> None:
    """Each attempt has a line of its own."""
    told = summary(result(FAILED, attempt(1, GroupState.SUCCEEDED))).splitlines()

    assert len(told) == 4
    assert "rank 1 failed (SIGKILL) after 12.0 s" in told[0]
    assert told[1].endswith("after 0.20 s of waiting: succeeded after 12.0 s")
    assert told[2] == "trainer succeeded after 1 min 24 s, 2 attempts"


def test_a_failure_is_told_with_its_root_cause() -> None:
    """The traceback stands there once, each attempt has a line, and the end says where to look."""
    told = summary(result(FAILED, attempt(1, GroupState.FAILED, failure(3), failure(1, rank=2))))

    assert told.startswith("trainer failed on ")
    assert told.count("Traceback") == 2
    assert told.count("rank 1 failed (SIGKILL)") == 1
    assert "Stopped because of that: 1 rank (0)" in told
    assert told.endswith(
        "\n\ntrainer failed after 1 min 24 s, 2 attempts\n"
        "logs: /logs/run\n"
        "stderr of rank 1: /logs/run/attempt_0/1/stderr.log"
    )
    assert "\x1b" not in told


@pytest.mark.parametrize(
    ("last", "coloured"),
    [
        (SUCCEEDED, "trainer \x1b[1;32msucceeded\x1b[0m after"),
        (FAILED, "trainer \x1b[1;31mfailed\x1b[0m after"),
        (attempt(0, GroupState.STOPPED), "trainer \x1b[1;33mstopped\x1b[0m after"),
    ],
)
def test_colours_are_few(last: Attempt, coloured: str) -> None:
    """In colour is how it ended, and the headline of a failure."""
    told = summary(result(last), colour=True)

    assert coloured in told
    assert told.count("\x1b") == (4 if last is FAILED else 2)


def test_who_is_told() -> None:
    """A person is told of every end, a pipe of all but a success."""
    assert is_worth_telling(result(SUCCEEDED), terminal=True)
    assert not is_worth_telling(result(SUCCEEDED), terminal=False)
    assert is_worth_telling(result(FAILED), terminal=False)
    assert is_worth_telling(result(attempt(0, GroupState.STOPPED)), terminal=False)


@pytest.mark.parametrize(
    ("last", "received", "status"),
    [
        (SUCCEEDED, [], 0),
        (SUCCEEDED, [signal.SIGTERM], 0),
        (FAILED, [], 137),
        (FAILED, [signal.SIGINT], 137),
        (attempt(0, GroupState.FAILED, failure(-11)), [], 139),
        (attempt(0, GroupState.FAILED, failure(3), failure(4, rank=2)), [], 3),
        (attempt(0, GroupState.FAILED, failure(None)), [], 1),
        (attempt(0, GroupState.FAILED, failure(0)), [], 1),
        (attempt(0, GroupState.FAILED), [], 1),
        (attempt(0, GroupState.STOPPED), [signal.SIGINT, signal.SIGTERM], 130),
        (attempt(0, GroupState.STOPPED), [signal.SIGTERM], 143),
        (attempt(0, GroupState.STOPPED), [], 1),
    ],
)
def test_the_exit_status_is_a_shells(last: Attempt, received: list[int], status: int) -> None:
    """0, the root cause's code, or 128 and the signal that the root cause, or a stopped launcher, was sent."""
    assert exit_status(result(last), received) == status
