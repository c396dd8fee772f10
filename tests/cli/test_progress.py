"""From the events of a run to what a person is told."""

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Iterable
from functools import partial
from typing import Any

import pytest

from aioelastic._base.durations import spoken
from aioelastic._cli.progress import Progress, follow
from aioelastic._cli.screen import Screen
from aioelastic._supervision.events import Event, EventKind
from aioelastic._supervision.exits import ExitCause
from tests.helpers.terminals import terminal_as
from tests.helpers.waiting import until


def started(attempt: int, ranks: int) -> list[Event]:
    """Give the events of an attempt's start."""
    return [
        Event(kind=EventKind.ATTEMPT_STARTED, attempt=attempt),
        *(Event(kind=EventKind.RANK_STARTED, rank=rank, pid=100 + rank) for rank in range(ranks)),
        Event(kind=EventKind.GROUP_STARTED),
    ]


def exited(rank: int, exitcode: int | None, **more: Any) -> Event:
    """Give the event of a rank's exit."""
    return Event(kind=EventKind.RANK_EXITED, rank=rank, exitcode=exitcode, **{"cause": ExitCause.ENDED, **more})


KILLED: dict[str, Any] = {"exitcode": -9, "signal": "SIGKILL", "cause": ExitCause.KILLED}

FAILING = [
    *started(0, 4),
    exited(0, 0),
    exited(3, **KILLED),
    Event(kind=EventKind.GROUP_FAILED, rank=3, **KILLED),
    Event(kind=EventKind.GROUP_STOPPING, signal="SIGTERM"),
    Event(kind=EventKind.RANK_STOPPING, rank=1, signal="SIGTERM"),
    exited(1, -15, signal="SIGTERM", cause=ExitCause.STOPPED),
    Event(kind=EventKind.RANK_KILLED, rank=2, signal="SIGKILL"),
]
"""An attempt of which rank 3 has failed, and rank 2 is being killed."""

RESTARTING = [
    exited(2, -9, signal="SIGKILL", cause=ExitCause.STOPPED),
    Event(kind=EventKind.ATTEMPT_ENDED, attempt=0),
    Event(kind=EventKind.RESTART_PLANNED, attempt=1, delay=0.25),
]


def lines(progress: Progress, events: Iterable[Event]) -> list[str]:
    """Give all lines that events lead to."""
    return [line for event in events for line in progress.see(event)]


@pytest.mark.parametrize(
    ("events", "status"),
    [
        ([], "attempt 0 · starting · 0 of 4 ranks up · 12 s"),
        (started(0, 4), "attempt 0 · 4 of 4 ranks up · 12 s"),
        (FAILING, "attempt 0 · stopping (SIGTERM) · 1 of 4 ranks up · 1 done · 1 failed · 12 s"),
        (FAILING + RESTARTING, "attempt 0 · next attempt in 0.25 s · 0 of 4 ranks up · 1 done · 1 failed · 12 s"),
        (FAILING + RESTARTING + started(1, 3), "attempt 1 · 3 of 4 ranks up · 12 s"),
        (started(9, 4), "attempt 9 · 4 of 4 ranks up · 12 s"),
    ],
)
def test_the_status_says_how_things_stand(events: list[Event], status: str) -> None:
    """At each moment of a run it says the attempt, what is going on, and how many ranks are up, done and failed."""
    progress = Progress(4, 3)
    lines(progress, events)

    assert progress.status(12.9) == status


def test_a_run_without_restarts_has_no_attempts() -> None:
    """Where there is one attempt only, it is not spoken of."""
    progress = Progress(1, 0)
    lines(progress, started(0, 1))

    assert progress.status(61) == "1 of 1 rank up · 1 min 1 s"


def test_lines_say_what_matters() -> None:
    """Why an attempt failed, when the next one begins, and who had to be killed; a run that goes well says nothing."""
    assert lines(Progress(4, 3), FAILING + RESTARTING) == [
        "aioelastic: rank 2 had to be killed",
        "aioelastic: attempt 0 failed (rank 3: SIGKILL); attempt 1 begins in 0.25 s (restart 1 of 3)",
    ]
    well = [*started(0, 2), exited(0, 0), exited(1, 0), Event(kind=EventKind.ATTEMPT_ENDED)]
    assert lines(Progress(2, 3), well) == []


@pytest.mark.parametrize(("exitcode", "words"), [(1, "exit code 1"), (0, "exit code 0"), (None, "exit code unknown")])
def test_a_failure_without_a_signal(exitcode: int | None, words: str) -> None:
    """A failure is named by its exit code; a 0 without a value is one, too."""
    progress = Progress(1, 1)
    failed = exited(0, exitcode), Event(kind=EventKind.GROUP_FAILED, rank=0, exitcode=exitcode)
    (line,) = lines(progress, [*started(0, 1), *failed, Event(kind=EventKind.RESTART_PLANNED, attempt=1, delay=0)])

    assert f"(rank 0: {words})" in line
    assert "done" not in progress.status(0)


def test_many_ranks_that_were_killed_are_one_line() -> None:
    """A thousand ranks that had to be killed are told of in one line."""
    killed = [Event(kind=EventKind.RANK_KILLED, rank=rank) for rank in (5, 0, 2, 1)]

    (line,) = lines(Progress(9, 0), [*killed, Event(kind=EventKind.ATTEMPT_ENDED)])

    assert line == "aioelastic: ranks 0-2, 5 had to be killed"


def test_signals_are_answered() -> None:
    """The first one says what happens and how to hurry it, by which means depends on the signal; the second kills."""
    interrupted, terminated = Progress(1, 0), Progress(1, 0)

    assert interrupted.signalled(signal.SIGINT) == (
        "aioelastic: SIGINT: the ranks are being stopped; press Ctrl-C again to kill them"
    )
    assert terminated.signalled(signal.SIGTERM) == (
        "aioelastic: SIGTERM: the ranks are being stopped; send it again to kill them"
    )
    assert interrupted.signalled(signal.SIGTERM) == "aioelastic: SIGTERM again: the ranks are being killed"


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0, "0.0 s"), (0.99, "0.9 s"), (59.99, "59.9 s"), (60, "1 min 0 s"), (3599.9, "59 min 59 s"), (7505, "2 h 5 min")],
)
def test_durations(seconds: float, words: str) -> None:
    """A duration is rounded down, and long ones have no seconds."""
    assert spoken(seconds, 1) == words


async def told(*events: Event) -> AsyncIterator[Event]:
    """Give events, and wait for nothing."""
    for event in events:
        yield event


async def test_a_pipe_gets_the_lines_only(capfd: pytest.CaptureFixture[str]) -> None:
    """Without a terminal there is no status, and no clock that would show it."""
    screen = Screen()
    await follow(screen, told(*FAILING, *RESTARTING, *started(1, 4)), Progress(4, 3))
    await screen.close()

    assert len(capfd.readouterr().err.splitlines()) == 2


async def test_a_terminal_gets_the_status_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The status follows the events, goes on with each second while nothing happens, and is gone at the end."""
    monkeypatch.setenv("TERM", "xterm")
    with terminal_as(partial(monkeypatch.setattr, sys), "stdout", "stderr") as terminal:

        async def events() -> AsyncIterator[Event]:
            for event in started(0, 2):
                yield event
            await until(lambda: terminal.rows()[-1] == "attempt 0 · 2 of 2 ranks up · 1 s", "the next second")
            yield Event(kind=EventKind.RESTART_PLANNED, attempt=1, delay=1)

        screen = Screen()
        await follow(screen, events(), Progress(2, 1), since=asyncio.get_running_loop().time() - 0.9)
        await screen.close()

        assert terminal.rows() == ["aioelastic: attempt 0 failed; attempt 1 begins in 1.0 s (restart 1 of 1)", ""]
        assert "2 of 2 ranks up · 0 s" in terminal.shown.decode()
