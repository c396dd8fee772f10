"""Cases from the field about groups that are run again: each test is named after what must hold, and links the report.

What an agent adds to the other cases of this folder: the grace, the survivors and the causes of each attempt.
"""

import asyncio
import fcntl
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from aioelastic import (
    Backoff,
    ChildFailedError,
    DefaultLogsSpecs,
    Event,
    EventKind,
    ExitCause,
    GroupState,
    LocalElasticAgent,
    Std,
    SurvivorsError,
    WorkerSpec,
)
from aioelastic._agent.free_ports import choose_port
from aioelastic._contexts import context as context_module
from aioelastic._supervision import ladder
from tests.helpers.agents import NOTES_START, STUCK, StuckTable, all_events, reached, shell_agent, started
from tests.helpers.groups import WAITS_FOR
from tests.helpers.programs import PYTHON
from tests.helpers.survivors import doomed
from tests.helpers.waiting import PATIENCE, until, until_written

SAVES = "trap 'echo asked >> asked; while ! [ -e go ]; do sleep 0.01; done; echo saved >> saved; exit 0' TERM; "
"""Takes as long to leave as it takes for a file ``go`` to come."""

STAYS = "echo ready >> ready; while :; do sleep 0.02; done"

FIRST = "test $TORCHELASTIC_RESTART_COUNT = 0"


def exits_of(events: list[Event]) -> list[tuple[int | None, int | None, str | None]]:
    """Give attempt, rank and signal of each exit."""
    exits = [each for each in events if each.kind is EventKind.RANK_EXITED]
    return sorted((each.attempt or 0, each.rank or 0, each.signal) for each in exits)


async def test_a_grace_that_is_long_enough_lets_a_rank_save(tmp_path: Path) -> None:
    """A rank that needs a while after TERM has it, when another one has failed and when the agent is closed.

    https://github.com/pytorch/pytorch/issues/119856, https://github.com/pytorch/pytorch/issues/68258
    """
    fails = f"test $LOCAL_RANK = 0 && {FIRST} && {{ {WAITS_FOR.format(sign='ready')}; exit 3; }}; "
    agent = shell_agent(fails + SAVES + STAYS, cwd=tmp_path, shutdown_timeout=60)
    running = asyncio.create_task(agent.run())
    for attempt in range(2):
        # One rank is left of attempt 0, and two are of attempt 1.
        await until_written(tmp_path / "ready", "ready\n" * (1 + 2 * attempt))
        closing = asyncio.create_task(agent.close()) if attempt else None
        await until_written(tmp_path / "asked", "asked\n" * (1 + 2 * attempt))
        (tmp_path / "go").touch()
        await until_written(tmp_path / "saved", "saved\n" * (1 + attempt))
        if closing is None:
            await until(lambda: len((tmp_path / "ready").read_text().split()) == 3)
            (tmp_path / "go").unlink()
        else:
            await closing

    first, second = (await running).attempts
    assert (list(first.failures), first.exits[1].exitcode, first.exits[1].cause) == ([0], 0, ExitCause.STOPPED)
    assert {each.exitcode for each in second.exits.values()} == {0}
    assert second.state is GroupState.STOPPED


@pytest.mark.parametrize("how", ["failure", "close", "hurried close"])
async def test_a_grace_that_is_too_short_kills_a_rank_that_saves(how: str, tmp_path: Path) -> None:
    """The same rank is killed when little is given, by the spec or by a close.

    https://github.com/pytorch/pytorch/issues/119856, https://github.com/pytorch/pytorch/issues/68258
    """
    fails = f"test $LOCAL_RANK = 0 && {{ {WAITS_FOR.format(sign='ready')}; exit 3; }}; " if how == "failure" else ""
    grace = 60 if how == "hurried close" else 0.1
    agent = shell_agent(fails + SAVES + STAYS, cwd=tmp_path, shutdown_timeout=grace, max_restarts=0)
    running = asyncio.create_task(agent.run())
    if how != "failure":
        await until_written(tmp_path / "ready", "ready\nready\n")
        await agent.close(timeout=0.1 if how == "hurried close" else None)
    (attempt,) = (await running).attempts

    assert not (tmp_path / "saved").exists()
    assert (attempt.exits[1].signal, attempt.exits[1].cause) == ("SIGKILL", ExitCause.STOPPED)


@pytest.mark.parametrize("budget", ["left", "spent", "stopped"])
async def test_a_restart_refuses_to_go_on_beside_what_cannot_be_killed(
    budget: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Only who would start again has a reason to raise: else the result names the process that is stuck.

    https://github.com/pytorch/pytorch/issues/185414
    """
    monkeypatch.setattr(context_module, "SystemTable", StuckTable)
    monkeypatch.setattr(ladder, "REAP_TIMEOUT", 0.5)
    restarts, grace = 0 if budget == "spent" else 1, 60 if budget == "stopped" else 0.05
    agent = shell_agent(NOTES_START + "exit 1", cwd=tmp_path, max_restarts=restarts, shutdown_timeout=grace)
    running = asyncio.create_task(agent.run())
    if budget == "left":
        with pytest.raises(SurvivorsError, match=f"pid {STUCK}"):
            await running
    else:
        if budget == "stopped":
            await reached(agent, EventKind.GROUP_FAILED)
            await agent.close(timeout=0.05)
        result = await running
        assert result.attempts[0].survivors == {0: [STUCK]}
        assert result.state is (GroupState.FAILED if budget == "spent" else GroupState.STOPPED)
    assert started(tmp_path) <= 2


async def test_ranks_that_were_stopped_are_not_causes_in_any_attempt(tmp_path: Path) -> None:
    """Of four ranks #2 fails: that is one failure, three exits stopped by us, and one restart, in each attempt.

    https://github.com/pytorch/pytorch/issues/160908, https://github.com/pytorch/pytorch/issues/88251
    """
    # Each of the others leaves in a way of its own that could be taken for a failure.
    script = """
        attempt=$TORCHELASTIC_RESTART_COUNT
        case $RANK in
            0) touch up.$attempt.$RANK; exec sleep 60;;
            1) trap 'exit 1' TERM;;
            2) while [ $(ls -d up.$attempt.* | wc -l) != 3 ]; do sleep 0.01; done 2> /dev/null; exit 3;;
            3) trap 'echo Connection closed by peer >&2; exit 143' TERM;;
        esac
        touch up.$attempt.$RANK; while :; do sleep 0.02; done
    """
    logs = DefaultLogsSpecs(log_dir=tmp_path / "logs", redirects=Std.ERR)
    agent = shell_agent(script, local_world_size=4, max_restarts=2, cwd=tmp_path, logs_specs=logs)
    events = agent.events()
    result = await agent.run()

    assert [list(each.failures) for each in result.attempts] == [[2], [2], [2]]
    for attempt in result.attempts:
        causes = {rank: each.cause for rank, each in attempt.exits.items()}
        assert causes == {2: ExitCause.ENDED, **dict.fromkeys((0, 1, 3), ExitCause.STOPPED)}
    with pytest.raises(ChildFailedError, match=r"1 rank failed[\s\S]*3 ranks \(0-1, 3\)"):
        result.raise_for_failures()
    seen = await all_events(events)
    assert [(each.attempt, each.rank) for each in seen if each.kind is EventKind.GROUP_FAILED] == [
        (0, 2),
        (1, 2),
        (2, 2),
    ]
    assert Counter(each.kind for each in seen)[EventKind.RESTART_PLANNED] == 2


async def test_ranks_that_cannot_boot_are_not_respawned_for_ever(tmp_path: Path) -> None:
    """A rank that fails at import is given its four attempts, at growing distances, and the error lists them.

    https://github.com/benoitc/gunicorn/issues/2504, https://github.com/Unitech/pm2/issues/705
    """
    spec = WorkerSpec(
        entrypoint=PYTHON,
        args=("-I", "-S", "-c", "import no_such_module"),
        max_restarts=3,
        backoff=Backoff(first=0.01, factor=3, jitter=0.1),
        # It never lives that long, so it is never forgiven.
        healthy_after=60,
        logs_specs=DefaultLogsSpecs(log_dir=tmp_path, redirects=Std.ALL),
    )
    agent = LocalElasticAgent(spec)
    events = agent.events()
    result = await agent.run()

    delays = [each.delay for each in result.attempts]
    assert delays[0] == 0
    assert delays[1:] == pytest.approx([0.01, 0.03, 0.09], rel=0.1)
    planned = [each for each in await all_events(events) if each.kind is EventKind.RESTART_PLANNED]
    assert [(each.attempt, each.delay) for each in planned] == [(1, delays[1]), (2, delays[2]), (3, delays[3])]
    for before, after in zip(result.attempts[:-1], result.attempts[1:], strict=True):
        assert after.start_time - before.end_time > after.delay * 0.9
    with pytest.raises(ChildFailedError, match="ModuleNotFoundError: No module named 'no_such_module'") as caught:
        result.raise_for_failures()
    listed = [f"attempt {each.number}" for each in result.attempts]
    assert [line.split(":")[0].split(",")[0].strip() for line in str(caught.value).splitlines() if "after" in line][
        -4:
    ] == listed


async def test_nothing_is_spawned_between_term_and_kill(tmp_path: Path) -> None:
    """A stop that comes while a failed attempt still has its grace ends the run with it.

    https://github.com/circus-tent/circus/issues/529
    """
    deaf = "trap '' TERM; touch deaf; while :; do sleep 0.05; done"
    script = f"{NOTES_START} test $LOCAL_RANK = 0 || {{ {deaf}; }}; {WAITS_FOR.format(sign='deaf')}; exit 3"
    agent = shell_agent(script, cwd=tmp_path, shutdown_timeout=60)
    events = agent.events()
    running = asyncio.create_task(agent.run())
    await reached(agent, EventKind.RANK_STOPPING)
    await agent.close(timeout=0)
    result = await running

    assert started(tmp_path) == 2
    assert exits_of(await all_events(events)) == [(0, 0, None), (0, 1, "SIGKILL")]
    assert (result.state, result.attempts[0].state) == (GroupState.STOPPED, GroupState.FAILED)


@pytest.mark.parametrize("attempt", [0, 1])
async def test_nothing_is_spawned_after_a_stop_at_any_step(attempt: int) -> None:
    """A stop at whichever step of the loop an attempt is on its way ends at once, and no rank starts after it.

    https://github.com/circus-tent/circus/issues/529
    """
    script = f"test $TORCHELASTIC_RESTART_COUNT = {attempt} && exec sleep 60; exit 1"
    for steps in range(0, 24, 3):
        agent = shell_agent(script, local_world_size=1)
        events = agent.events()
        running = asyncio.create_task(agent.run())
        if attempt:
            await reached(agent, EventKind.RESTART_PLANNED)
        for _ in range(steps):
            await asyncio.sleep(0)
        async with asyncio.timeout(PATIENCE):
            await agent.close()
        assert (await running).state is GroupState.STOPPED, steps
        counts = Counter(each.kind for each in await all_events(events))
        assert counts[EventKind.RANK_STARTED] == counts[EventKind.RANK_EXITED] <= 1 + attempt, steps
        assert counts[EventKind.ATTEMPT_STARTED] == counts[EventKind.ATTEMPT_ENDED] <= 1 + attempt, steps


HOLDS = """
import fcntl, os, signal, socket, sys
port = socket.socket()
port.bind(("127.0.0.1", int(os.environ["MASTER_PORT"])))
port.listen()
name = socket.socket(socket.AF_UNIX)
name.bind("\\0" + os.getcwd())
lock = open("lock", "a")
fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
if os.environ["TORCHELASTIC_RESTART_COUNT"] == "1":
    sys.exit()
reader, writer = os.pipe()
if not os.fork():
    if "deaf" in sys.argv[1]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "daemon" in sys.argv[1]:
        os.setsid()
    if "daemon" not in sys.argv[1] or not os.fork():
        os.write(writer, b"x")
        signal.pause()
    os._exit(0)
os.read(reader, 1)
os.kill(os.getpid(), signal.SIGKILL)
"""
"""Takes a port (without SO_REUSEADDR), a name and a lock, in attempt 0 leaves a grandchild with them, and dies."""


@pytest.mark.parametrize("grandchild", ["child", "daemon", "deaf daemon"])
async def test_the_next_attempt_gets_what_a_grandchild_held(grandchild: str, tmp_path: Path) -> None:
    """A new attempt begins when the last process is gone, in whatever session, so ports and locks are free again.

    https://github.com/dask/distributed/issues/1303, https://github.com/Unitech/pm2/issues/1715
    """
    spec = WorkerSpec(
        entrypoint=PYTHON,
        args=("-I", "-S", "-c", HOLDS, grandchild),
        master_port=choose_port(),
        max_restarts=1,
        backoff=Backoff(first=0),
        cwd=tmp_path,
        shutdown_timeout=0.05,
        logs_specs=DefaultLogsSpecs(log_dir=tmp_path / "logs", redirects=Std.ERR),
    )
    result = await LocalElasticAgent(spec).run()

    result.raise_for_failures()
    assert [each.exits[0].signal for each in result.attempts] == ["SIGKILL", None]


def lock_and_fail_once(path: str) -> int:
    """Be the only one who has a lock; in attempt 0 leave it to a forked daemon, and fail."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT)
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    if attempt == 0:
        reader, writer = os.pipe()
        if not os.fork():
            os.setsid()
            os.write(writer, b"x")
            signal.pause()
        os.read(reader, 1)
        raise ValueError("attempt 0")
    return attempt


async def test_the_next_attempt_of_a_function_gets_what_a_grandchild_held(tmp_path: Path) -> None:
    """The same holds for a function whose copy has executed nothing.

    https://github.com/dask/distributed/issues/1303
    """
    spec = WorkerSpec(
        entrypoint=lock_and_fail_once, args=(str(tmp_path / "lock"),), start_method="fork", backoff=Backoff(first=0)
    )

    result = await LocalElasticAgent(spec).run()

    assert result.return_values == {0: 1}


async def test_a_rank_that_somebody_kills_is_started_again() -> None:
    """SIGKILL from outside is a failure by a signal from elsewhere, and the next attempt has new processes.

    https://github.com/pytorch/pytorch/issues/160908
    """
    agent = shell_agent(f"{FIRST} && exec sleep 60; exit 0")
    running = asyncio.create_task(agent.run())
    started_rank = await reached(agent, EventKind.RANK_STARTED, 1)
    assert started_rank.pid is not None
    os.kill(started_rank.pid, signal.SIGKILL)
    result = await running

    assert result.state is GroupState.SUCCEEDED
    first, second = result.attempts
    assert {rank: each.cause for rank, each in first.exits.items()} == {1: ExitCause.KILLED, 0: ExitCause.STOPPED}
    assert not {each.pid for each in first.exits.values()} & {each.pid for each in second.exits.values()}


@pytest.mark.parametrize("given", [True, False], ids=["given", "temporary"])
async def test_a_log_directory_that_is_removed_is_made_again(
    given: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank removes all logs and fails: the next attempt has its own all the same.

    https://github.com/Supervisor/supervisor/issues/240, https://github.com/mikopbx/Core/issues/1051
    """
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    logs = tmp_path / "logs"
    specs = DefaultLogsSpecs(log_dir=logs if given else None, redirects=Std.OUT)
    script = f'echo hello; {FIRST} || exit 0; rm -r "$1"/logs "$1"/aioelastic-* 2> /dev/null; exit 1'
    spec = WorkerSpec(
        entrypoint="sh", args=("-c", script, "sh", str(tmp_path)), logs_specs=specs, backoff=Backoff(first=0)
    )
    result = await LocalElasticAgent(spec).run()

    assert [each.state for each in result.attempts] == [GroupState.FAILED, GroupState.SUCCEEDED]
    assert not Path(result.attempts[0].log_dir).exists()
    assert Path(result.attempts[1].stdouts[0]).read_text() == "hello\n"


def test_a_launcher_that_is_killed_while_it_restarts_leaves_nothing(tmp_path: Path) -> None:
    """At whatever point between two attempts SIGKILL comes, ranks and daemons of both are gone, and so is the guard.

    https://github.com/vllm-project/vllm/issues/55510, https://github.com/anthropics/claude-code/issues/26658
    """
    program = """
async def main():
    agent = LocalElasticAgent(WorkerSpec(entrypoint="sh", args=("-c", sys.argv[2]), local_world_size=2,
        max_restarts=10**6, backoff=Backoff(first=0), shutdown_timeout=0.01))
    running = asyncio.create_task(agent.run())
    async for event in agent.events():
        if event.kind is EventKind.ATTEMPT_STARTED and event.attempt == 3:
            print("up", flush=True)
    await running
run(main)
"""
    fails = "setsid sleep 97 & (trap '' TERM; exec sleep 98) & test $LOCAL_RANK = 0 && exec sleep 99; exit 1"
    with doomed(program, fails) as supervisor:
        assert supervisor.line() == "up"
        time.sleep(random.random() * 0.05)
        assert supervisor.process.poll() is None
        supervisor.kill()
        assert supervisor.until_gone() < 4
