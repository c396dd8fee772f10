"""The agent: attempts, what they give, and what ends a run."""

import asyncio
import json
import re
from dataclasses import replace
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
    RendezvousError,
    RunResult,
    SpecificationError,
    StandaloneRendezvous,
    StaticRendezvous,
    Std,
    SurvivorsError,
    WorkerSpec,
)
from aioelastic._contexts import context as context_module
from aioelastic._supervision import ladder
from tests.helpers.agents import STUCK, WORLD, FixedRendezvous, StuckTable, all_events, reached, shell_agent
from tests.helpers.drivers import LOOPS, run_driver
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


@pytest.mark.parametrize("loop", LOOPS)
def test_a_clock_that_is_set_changes_no_duration(loop: str) -> None:
    """A run and its attempts are as long as they were, although the wall's clock goes back by an hour at each look."""
    program = """
import itertools
time.time = itertools.count(2_000_000_000, -3600).__next__

async def main():
    result = await LocalElasticAgent(WorkerSpec(entrypoint="sh", args=("-c", "exit 0"))).run()
    print(0 < result.attempts[0].duration <= result.duration < 60, result.attempts[0].end_time < result.start_time)

run(main)
"""
    assert run_driver(program, loop) == "True True\n"


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
    (warning,) = [each.getMessage() for each in caplog.records if each.levelname == "WARNING"]
    assert re.search(r"event file '.*/run/events.jsonl' failed \(.* Is a directory.*\) and missed \d+ bytes", warning)


async def test_what_cannot_be_killed_forbids_a_restart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process in uninterruptible sleep ends the run with an error that names it; nothing is started again."""
    monkeypatch.setattr(context_module, "SystemTable", StuckTable)
    monkeypatch.setattr(ladder, "REAP_TIMEOUT", 0.5)
    rendezvous = FixedRendezvous()
    agent = shell_agent("exit 1", rendezvous=rendezvous, shutdown_timeout=0)

    with pytest.raises(SurvivorsError, match=f"of rank 10 pid {STUCK}") as caught:
        await agent.run()

    assert caught.value.survivors == {10: [STUCK]}
    assert (caught.value.attempt, rendezvous.rounds) == (0, 1)
    assert agent.state is GroupState.FAILED
    assert [each.survivors for each in agent.attempts] == [{10: [STUCK]}]


async def test_an_agent_runs_once() -> None:
    """A second run is an error that says what to do; one that was closed before is a run that was stopped."""
    agent = shell_agent("true")
    await agent.run()
    with pytest.raises(ContextStateError, match="was run before: make a new LocalElasticAgent"):
        await agent.run()
    async with shell_agent("true") as closed:
        pass
    assert (await closed.run()).state is closed.state is GroupState.STOPPED
    assert [each.kind for each in await all_events(closed.events())] == [EventKind.RUN_ENDED]


async def test_what_cannot_start_ends_the_run_with_its_error(tmp_path: Path) -> None:
    """A program that is gone is no failed attempt; those before it are not forgotten, and the events say why."""
    program = tmp_path / "program"
    program.write_text('#!/bin/sh\nrm "$0"; exit 3\n')
    program.chmod(0o755)
    agent = LocalElasticAgent(WorkerSpec(entrypoint=program, backoff=Backoff(first=0)))
    events = agent.events()

    with pytest.raises(FileNotFoundError):
        await agent.run()

    assert [each.failures[0].exitcode for each in agent.attempts] == [3]
    *_, ended, last = await all_events(events)
    assert (ended.kind, ended.attempt, last.kind) == (EventKind.ATTEMPT_ENDED, 1, EventKind.RUN_ENDED)
    assert ended.state is last.state is agent.state is GroupState.FAILED
    assert "No such file or directory" in ended.message
    assert ended.message == last.message


def test_the_end_of_the_event_loop_is_in_the_events(tmp_path: Path) -> None:
    """A run in a task that nobody waited for has an end in its ``events.jsonl``, and leaves no process."""
    agent = shell_agent("echo up; exec sleep 60", logs_specs=DefaultLogsSpecs(log_dir=tmp_path, redirects=Std.OUT))

    async def main() -> "asyncio.Task[RunResult]":
        running = asyncio.create_task(agent.run())
        await reached(agent, EventKind.GROUP_STARTED)
        return running

    running = asyncio.run(main())

    assert running.cancelled()
    (path,) = tmp_path.glob("*/events.jsonl")
    last = json.loads(path.read_text().splitlines()[-1])
    assert (last["kind"], last["state"]) == ("run ended", "stopped")


class Nonsense:
    """A rendezvous that gives whatever it was given (a `Rendezvous` by its looks)."""

    def __init__(self, value: Any, *, is_async: bool = True) -> None:
        self._value = value
        self._is_async = is_async

    def __repr__(self) -> str:
        return "nonsense"

    def next_round(self) -> Any:
        """Give it."""
        return self._later() if self._is_async else self._value

    async def _later(self) -> Any:
        if isinstance(self._value, BaseException):
            raise self._value
        return self._value


@pytest.mark.parametrize(
    ("rendezvous", "error", "words"),
    [
        (Nonsense(None), RendezvousError, "next_round() of nonsense gave NoneType: let it give a WorldInfo"),
        (Nonsense(WORLD, is_async=False), RendezvousError, "next_round() of nonsense gave WorldInfo: make it async"),
        (Nonsense(asyncio.CancelledError()), RendezvousError, "was cancelled, and not by the agent"),
        (Nonsense(OSError("no route")), OSError, "no route"),
        (StandaloneRendezvous(1), RendezvousError, "has no place for the 2 ranks of this node"),
        (StandaloneRendezvous(3), RendezvousError, "has no place for the 2 ranks of this node"),
        (
            StaticRendezvous(1, nnodes=2, node_rank=1, master_addr="node0"),
            RendezvousError,
            "they would be ranks 1..2 of 2; give both one number",
        ),
    ],
)
async def test_no_rank_starts_without_a_place(rendezvous: Any, error: type[Exception], words: str) -> None:
    """What a rendezvous gives is checked, and what it raises comes through; nothing is started then."""
    agent = shell_agent("true", rendezvous=rendezvous)
    events = agent.events()

    with pytest.raises(error, match=re.escape(words)):
        await agent.run()

    assert [(each.kind, each.state) for each in await all_events(events)] == [(EventKind.RUN_ENDED, GroupState.FAILED)]


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"group_rank": 2}, "group_rank is 2"),
        ({"world_size": 0}, "world_size is 0"),
        ({"base_rank": -1}, "base_rank is -1"),
        ({"base_rank": 0.5}, "base_rank must be an int"),
        ({"master_port": 0}, "master_port is 0"),
        ({"master_addr": ""}, "master_addr"),
        ({"run_id": None}, "run_id"),
        ({"attempt": -1}, "attempt is -1"),
    ],
)
def test_a_place_that_cannot_be_is_refused(wrong: dict[str, Any], words: str) -> None:
    """A `WorldInfo` checks itself."""
    with pytest.raises(SpecificationError, match=re.escape(words)):
        replace(WORLD, **wrong)


async def test_a_rendezvous_may_count_the_attempts() -> None:
    """Where it does, for all nodes, the ranks and the result have its number."""
    rendezvous = FixedRendezvous(replace(WORLD, attempt=5))

    result = await shell_agent("test $TORCHELASTIC_RESTART_COUNT = 5", rendezvous=rendezvous, max_restarts=0).run()

    assert [(each.number, each.state) for each in result.attempts] == [(5, GroupState.SUCCEEDED)]


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
        ({"straggler_timeout": -1}, "straggler_timeout is -1"),
        ({"rendezvous": FixedRendezvous}, "rendezvous must be an object"),
        ({"virtual_local_rank": "no"}, "virtual_local_rank must be a bool"),
        ({"death_sig": 0}, "death_sig is 0"),
        ({"shutdown_timeout": -1}, "shutdown_timeout is -1"),
    ],
)
def test_a_spec_that_cannot_be_used_is_refused(wrong: dict[str, Any], words: str) -> None:
    """Each value that cannot be used gives a typed error that names it, when the spec is made."""
    with pytest.raises(SpecificationError, match=re.escape(words)):
        WorkerSpec(**{"entrypoint": "true", **wrong})


def test_what_a_group_would_refuse_is_refused_before_the_rendezvous() -> None:
    """An agent that is made can be run: what its groups are made of is checked with it."""
    with pytest.raises(SpecificationError, match="has a NUL"):
        shell_agent("a\0b")
    with pytest.raises(SpecificationError, match="tee"):
        shell_agent("true", logs_specs=DefaultLogsSpecs(tee={5: Std.OUT}))


def test_a_spec_does_not_change_with_what_it_was_made_of() -> None:
    """Arguments and variables are copied."""
    args, envs = ["a"], {"A": "b"}
    spec = WorkerSpec(entrypoint="true", args=args, envs=envs)
    args.append("b")
    envs["A"] = "c"

    assert (spec.args, spec.envs) == (("a",), {"A": "b"})


def test_a_result_and_its_spec_speak_for_themselves() -> None:
    """Representations say what is going on; an agent takes nothing but a spec."""
    assert repr(shell_agent("true")) == "<LocalElasticAgent 'default': not started>"
    assert RunResult(GroupState.STOPPED).duration == 0
    with pytest.raises(SpecificationError, match="must be a WorkerSpec, not str"):
        LocalElasticAgent("true")  # type: ignore[arg-type]
