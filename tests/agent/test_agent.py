"""The agent: attempts, what they give, and what ends a run."""

import json
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from aioelastic import (
    Backoff,
    ChildFailedError,
    ContextStateError,
    DefaultLogsSpecs,
    EventKind,
    GroupState,
    LocalElasticAgent,
    RunResult,
    SpecificationError,
    Std,
    SurvivorsError,
    WorkerSpec,
)
from aioelastic._contexts import context as context_module
from aioelastic._supervision import ladder
from tests.helpers.agents import STUCK, WORLD, FixedRendezvous, StuckTable, all_events, shell_agent
from tests.helpers.functions import give

FAILS_TWICE = "test $TORCHELASTIC_RESTART_COUNT = 2 || test $LOCAL_RANK = 0"
"""Fails in rank 1, in the attempts 0 and 1."""


async def test_a_run_ends_with_the_first_attempt_that_succeeds() -> None:
    """Failed attempts are followed by others, and the result has the last one's values and all their histories."""
    rendezvous = FixedRendezvous()
    result = await shell_agent(FAILS_TWICE, rendezvous=rendezvous).run()

    assert result.state is GroupState.SUCCEEDED
    assert not result.is_failed()
    result.raise_for_failures()
    assert result.failures == {}
    assert rendezvous.rounds == 3
    assert [(each.number, each.state) for each in result.attempts] == [
        (0, GroupState.FAILED),
        (1, GroupState.FAILED),
        (2, GroupState.SUCCEEDED),
    ]
    assert [list(each.failures) for each in result.attempts] == [[11], [11], []]
    assert {rank: each.exitcode for rank, each in result.attempts[2].exits.items()} == {10: 0, 11: 0}
    assert all(each.world == WORLD for each in result.attempts)
    assert result.start_time <= result.attempts[0].start_time <= result.attempts[2].end_time <= result.end_time


async def test_a_run_fails_when_its_restarts_are_spent() -> None:
    """The result has the last attempt's failures by global rank, and its error lists all attempts."""
    result = await shell_agent("exit $((RANK - 7))", max_restarts=1, rendezvous=FixedRendezvous()).run()

    assert result.is_failed()
    failure = result.root_failure()
    assert failure is not None
    rank = next(iter(result.failures))
    assert (rank, failure.local_rank, failure.exitcode) in {(10, 0, 3), (11, 1, 4)}
    with pytest.raises(ChildFailedError, match="2 attempts:") as caught:
        result.raise_for_failures()
    assert re.search(r"attempt 0: rank 1\d( and 1 more)? failed \(exit code [34]\) after", str(caught.value))


async def test_functions_give_values_by_global_rank() -> None:
    """What the functions of the last attempt return is in the result."""
    spec = WorkerSpec(
        entrypoint=give, args=("value",), local_world_size=2, start_method="fork", rendezvous=FixedRendezvous()
    )

    result = await LocalElasticAgent(spec).run()

    assert result.return_values == {10: "value", 11: "value"}


@pytest.mark.parametrize(("healthy_after", "attempts"), [(0.0, 5), (60.0, 2), (None, 2)])
async def test_a_healthy_spell_gives_the_restarts_back(healthy_after: float | None, attempts: int) -> None:
    """An attempt that ran long enough does not count against the budget, a shorter one does."""
    script = "test $TORCHELASTIC_RESTART_COUNT = 4"

    result = await shell_agent(script, max_restarts=1, healthy_after=healthy_after).run()

    assert len(result.attempts) == attempts
    assert result.is_failed() == (attempts < 5)


async def test_stragglers_are_stopped_and_the_run_succeeds() -> None:
    """A while after the first rank has succeeded the others are stopped; that is no failure."""
    script = "test $LOCAL_RANK = 0 || sleep 60"

    result = await shell_agent(script, straggler_timeout=0.05).run()

    assert result.state is GroupState.SUCCEEDED
    assert len(result.attempts) == 1
    assert {rank: each.signal for rank, each in result.attempts[0].exits.items()} == {0: None, 1: "SIGTERM"}


async def test_a_straggler_that_fails_in_time_is_a_failure() -> None:
    """The policy is about those who are late, not about those who fail."""
    result = await shell_agent("exit $LOCAL_RANK", straggler_timeout=60, max_restarts=0).run()

    assert result.is_failed()


async def test_events_tell_the_run_with_global_ranks_and_attempts(tmp_path: Path) -> None:
    """The agent's events are those of its groups and its own; ``events.jsonl`` in the run's directory has the same."""
    agent = shell_agent(
        "exit $((RANK == 11 && TORCHELASTIC_RESTART_COUNT == 0))",
        rendezvous=FixedRendezvous(),
        logs_specs=DefaultLogsSpecs(log_dir=tmp_path, redirects=Std.OUT),
    )
    events = agent.events()
    result = await agent.run()
    seen = await all_events(events)

    own = [(each.kind, each.attempt, each.state) for each in seen if each.rank is None and each.state is not None]
    assert own == [
        (EventKind.ATTEMPT_ENDED, 0, GroupState.FAILED),
        (EventKind.ATTEMPT_ENDED, 1, GroupState.SUCCEEDED),
        (EventKind.RUN_ENDED, None, GroupState.SUCCEEDED),
    ]
    assert [each.rank for each in seen if each.kind is EventKind.GROUP_FAILED] == [11]
    assert [each.attempt for each in seen if each.kind is EventKind.RANK_STARTED] == [0, 0, 1, 1]
    planned = next(each for each in seen if each.kind is EventKind.RESTART_PLANNED)
    assert (planned.attempt, planned.delay) == (1, 0)
    assert result.log_dir == str(tmp_path / "run")
    assert [each.log_dir for each in result.attempts] == [str(tmp_path / "run" / f"attempt_{n}") for n in (0, 1)]
    lines = (tmp_path / "run" / "events.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == [each.to_json() for each in seen]


async def test_a_run_without_logs_leaves_no_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody asked for files: there are no events in a file, either."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)

    result = await shell_agent("true").run()

    assert result.log_dir == ""
    assert list(tmp_path.iterdir()) == []


async def test_events_that_cannot_be_written_end_in_one_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The run goes on without its ``events.jsonl``."""
    (tmp_path / "run" / "events.jsonl").mkdir(parents=True)
    specs = DefaultLogsSpecs(log_dir=tmp_path, redirects=Std.OUT)

    result = await shell_agent("true", rendezvous=FixedRendezvous(), logs_specs=specs).run()

    assert result.state is GroupState.SUCCEEDED
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == ["the run's events are not written"]


async def test_what_cannot_be_killed_forbids_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in uninterruptible sleep ends the run with an error that names it; nothing is started again."""
    monkeypatch.setattr(context_module, "SystemTable", StuckTable)
    monkeypatch.setattr(ladder, "REAP_TIMEOUT", 0.05)
    rendezvous = FixedRendezvous()
    agent = shell_agent("exit 1", rendezvous=rendezvous, shutdown_timeout=0)

    with pytest.raises(SurvivorsError, match=f"of rank 10 pid {STUCK}") as caught:
        await agent.run()

    assert caught.value.survivors == {10: [STUCK]}
    assert (caught.value.attempt, rendezvous.rounds) == (0, 1)
    assert agent.state is GroupState.STOPPED


async def test_an_agent_runs_once() -> None:
    """A second run, and a run after the close, are errors that say what to do."""
    agent = shell_agent("true")
    await agent.run()
    with pytest.raises(ContextStateError, match="was run before: make a new LocalElasticAgent"):
        await agent.run()
    async with shell_agent("true") as closed:
        pass
    with pytest.raises(ContextStateError, match="was closed"):
        await closed.run()
    assert [each.kind for each in await all_events(closed.events())] == [EventKind.RUN_ENDED]


async def test_what_cannot_start_ends_the_run_with_its_error() -> None:
    """A program that is not there is no failed attempt: it would not be there the next time, either."""
    agent = LocalElasticAgent(WorkerSpec(entrypoint="/no/such/program", max_restarts=3))
    events = agent.events()

    with pytest.raises(FileNotFoundError):
        await agent.run()

    assert [each.kind for each in await all_events(events)][-1] is EventKind.RUN_ENDED


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"entrypoint": 3}, "entrypoint is of type int"),
        ({"args": 3}, "args of rank 0 must be a tuple"),
        ({"role": "a\nb"}, "must be one line"),
        ({"local_world_size": 0}, "local_world_size is 0: give 1 or more"),
        ({"envs": {"A=B": "c"}}, "must not be empty nor have '='"),
        ({"max_restarts": -1}, "max_restarts is -1"),
        ({"backoff": 3}, "backoff must be a Backoff"),
        ({"rendezvous": object()}, "next_round"),
        ({"logs_specs": "logs"}, "logs_specs must be a LogsSpecs"),
        ({"log_line_prefix_template": 3}, "log_line_prefix_template must be a str"),
        ({"log_line_prefix_template": "a\n"}, "log_line_prefix_template has a line end"),
        ({"start_method": "clone"}, "start_method is 'clone'"),
        ({"duplicate_stdout_filters": [3]}, "duplicate_stdout_filters"),
        ({"master_port": 70000}, "master_port is 70000"),
        ({"master_addr": "a b"}, "master_addr"),
        ({"straggler_timeout": "x"}, "straggler_timeout must be a number of seconds"),
        ({"death_sig": 0}, "death_sig is 0"),
        ({"shutdown_timeout": -1}, "shutdown_timeout is -1"),
    ],
)
def test_a_spec_that_cannot_be_used_is_refused(wrong: dict[str, Any], words: str) -> None:
    """Each value that cannot be used gives a typed error that names it, when the spec is made."""
    with pytest.raises(SpecificationError, match=re.escape(words)):
        WorkerSpec(**{"entrypoint": "true", **wrong})


def test_a_result_and_its_spec_speak_for_themselves() -> None:
    """Representations say what is going on; an agent takes nothing but a spec."""
    assert repr(shell_agent("true")) == "<LocalElasticAgent 'default': not started>"
    assert Backoff(first=1).delay(1) == 1
    assert RunResult(GroupState.STOPPED).duration == 0
    assert WorkerSpec(entrypoint="true").death_sig == signal.SIGTERM
    with pytest.raises(SpecificationError, match="must be a WorkerSpec, not str"):
        LocalElasticAgent("true")  # type: ignore[arg-type]
