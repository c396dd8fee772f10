"""A stop wins over a restart, wherever the run stands."""

import asyncio
import os
import signal
from contextlib import suppress
from pathlib import Path

import pytest

from aioelastic import Backoff, DefaultLogsSpecs, EventKind, ExitCause, GroupState, Std, WorldInfo, forward_signals
from aioelastic._agent import rounds
from aioelastic._supervision import group
from tests.helpers.agents import NOTES_START, WORLD, LonelyRendezvous, all_events, reached, shell_agent, started
from tests.helpers.waiting import until, until_written

STAYS = "echo ready >> ready; exec sleep 60"


@pytest.mark.parametrize("place", ["rendezvous", "start", "run", "failure", "wait", "second rendezvous"])
async def test_nothing_starts_after_a_close(place: str, tmp_path: Path) -> None:
    """Closed in its rendezvous, its start, its run or its waits, a run ends, and no rank comes after that."""
    rendezvous = {"rendezvous": LonelyRendezvous(), "second rendezvous": LonelyRendezvous(1)}.get(place)
    agent = shell_agent(
        NOTES_START + (STAYS if place == "run" else "exit 1"),
        cwd=tmp_path,
        max_restarts=1000,
        backoff=Backoff(first=60 if place == "wait" else 0),
        rendezvous=rendezvous,
    )
    running = asyncio.create_task(agent.run())
    if rendezvous is not None:
        await rendezvous.waiting.wait()
    elif place == "run":
        await until_written(tmp_path / "ready", "ready\nready\n")
    else:
        where = {"start": EventKind.ATTEMPT_STARTED, "failure": EventKind.GROUP_FAILED}
        await reached(agent, where.get(place, EventKind.RESTART_PLANNED))
    await agent.close(timeout=5)
    count = started(tmp_path)
    result = await running

    assert started(tmp_path) == count
    assert agent.state is result.state is GroupState.STOPPED
    assert not result.is_failed()
    result.raise_for_failures()
    assert rendezvous is None or rendezvous.cancelled


async def test_what_a_start_that_is_given_up_has_logged_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Closed when its ranks run and are not told of yet, a run knows what became of them, and where their logs are."""
    held = asyncio.Event()
    monkeypatch.setattr(group, "backend_loaded", held.wait)
    specs = DefaultLogsSpecs(log_dir=tmp_path, redirects=Std.ALL)
    agent = shell_agent("echo up; exec sleep 60", logs_specs=specs)
    running = asyncio.create_task(agent.run())
    await until(lambda: [path.read_text() for path in tmp_path.glob("*/attempt_0/*/stdout.log")] == ["up\n"] * 2)
    closing = asyncio.create_task(agent.close())
    await asyncio.sleep(0)
    held.set()
    await closing
    result = await running

    (attempt,) = result.attempts
    assert {each.cause for each in attempt.exits.values()} == {ExitCause.STOPPED}
    assert Path(result.log_dir).parent == tmp_path
    assert Path(result.log_dir, "events.jsonl").exists()


async def test_leaving_the_block_closes_the_run(tmp_path: Path) -> None:
    """An embedding service starts a run as a task, and the end of the block stops its ranks politely."""
    async with shell_agent(STAYS, cwd=tmp_path) as agent:
        running = asyncio.create_task(agent.run())
        await until_written(tmp_path / "ready", "ready\nready\n")
        await until(lambda: agent.state is GroupState.RUNNING)
    result = await running

    assert {each.cause for each in result.attempts[0].exits.values()} == {ExitCause.STOPPED}
    assert {each.signal for each in result.attempts[0].exits.values()} == {"SIGTERM"}


@pytest.mark.parametrize("times", [1, 2])
async def test_a_cancelled_run_leaves_nothing(times: int, tmp_path: Path) -> None:
    """Cancelled once, a run ends its ranks politely; cancelled twice, at once."""
    trap = "trap 'touch asked.$LOCAL_RANK' TERM; " + ("" if times == 2 else "trap 'exit 0' TERM; ")
    agent = shell_agent(trap + "echo ready >> ready; while :; do sleep 0.05; done", cwd=tmp_path)
    events = agent.events()
    running = asyncio.create_task(agent.run())
    await until_written(tmp_path / "ready", "ready\nready\n")
    running.cancel()
    if times == 2:
        await until(lambda: len(list(tmp_path.glob("asked.*"))) == 2)
        running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running

    exits = [each for each in await all_events(events) if each.kind is EventKind.RANK_EXITED]
    assert {each.signal for each in exits} == ({"SIGKILL"} if times == 2 else {None})
    assert agent.state is GroupState.STOPPED


async def test_a_signal_to_the_program_ends_the_run(tmp_path: Path) -> None:
    """`forward_signals` takes an agent: each rank gets the signal once, and no attempt follows."""
    script = NOTES_START + "trap 'echo heard >> heard; exit 5' USR1; echo ready >> ready; while :; do sleep 0.02; done"
    agent = shell_agent(script, cwd=tmp_path)
    async with forward_signals(agent, signal.SIGUSR1) as forwarded:
        running = asyncio.create_task(agent.run())
        await until_written(tmp_path / "ready", "ready\nready\n")
        os.kill(os.getpid(), signal.SIGUSR1)
        result = await running

    assert forwarded.received == (signal.SIGUSR1,)
    assert result.state is GroupState.STOPPED
    assert (tmp_path / "heard").read_text() == "heard\nheard\n"
    assert started(tmp_path) == 2


async def test_a_second_close_hurries_the_first(tmp_path: Path) -> None:
    """A close without a grace ends what one with a long grace waits for."""
    agent = shell_agent("trap '' TERM; echo ready >> ready; while :; do sleep 0.05; done", cwd=tmp_path)
    running = asyncio.create_task(agent.run())
    await until_written(tmp_path / "ready", "ready\nready\n")
    slow = asyncio.create_task(agent.close())
    await reached(agent, EventKind.RANK_STOPPING)
    assert agent.state is GroupState.STOPPING
    await agent.close(timeout=0)
    await slow

    assert {each.signal for each in (await running).attempts[0].exits.values()} == {"SIGKILL"}


async def test_a_rendezvous_that_does_not_hear_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """One that goes on although it was cancelled holds up neither a close nor the program; a warning says so."""
    monkeypatch.setattr(rounds, "REAP_TIMEOUT", 0.05)
    begun, end = asyncio.Event(), asyncio.Event()

    class Deaf:
        async def next_round(self) -> WorldInfo:
            begun.set()
            while not end.is_set():
                with suppress(asyncio.CancelledError):
                    await end.wait()
            return WORLD

    agent = shell_agent("true", rendezvous=Deaf())
    running = asyncio.create_task(agent.run())
    await begun.wait()
    await agent.close()

    assert (await running).state is GroupState.STOPPED
    assert "the rendezvous goes on" in caplog.text
    end.set()
    await until(lambda: len(asyncio.all_tasks()) == 1)
