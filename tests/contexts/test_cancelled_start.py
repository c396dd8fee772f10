"""A start that is cancelled, wherever it stands, leaves a running group that someone holds, or nothing.

The reports behind it: https://github.com/python/cpython/issues/133536, https://github.com/python/cpython/issues/103847
and https://github.com/python/cpython/issues/125502 (a sibling fails while a spawn is under way: a hang, or an orphan).
"""

import asyncio
import contextlib
import logging
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import uvloop

from aioelastic import (
    ContextStateError,
    DefaultLogsSpecs,
    EventKind,
    GroupState,
    LogsDest,
    PContext,
    Std,
    start_processes,
)
from aioelastic._base.threads import in_thread
from aioelastic._contexts import context as context_module
from aioelastic._logs import group_logs
from aioelastic._logs.files import open_log
from tests.helpers.leaks import descendants
from tests.helpers.programs import SLEEP, shells
from tests.helpers.sampling import sample
from tests.helpers.waiting import PATIENCE, is_alive, until

RANKS = shells(SLEEP, SLEEP, SLEEP, SLEEP)
STEPS = (*range(40), *range(40, 201, 4))
"""Loop steps after which a start is cancelled: all of the first ones, later they are short beside a rank's start."""


def _alive() -> list[int]:
    """Give the pids of our descendants that run, without multiprocessing's resource tracker and the fork server."""
    running = [pid for pid in descendants("self") if is_alive(pid)]
    return [pid for pid in running if b"multiprocessing" not in Path(f"/proc/{pid}/cmdline").read_bytes()]


async def _end(task: "asyncio.Task[PContext]") -> bool:
    """See a cancelled start to its end; close what it gave if it was faster, and tell whether it was."""
    try:
        context = await task
    except asyncio.CancelledError:
        return False
    await context.close(signal.SIGKILL)
    return True


@pytest.mark.parametrize("tee", [Std.NONE, Std.ALL])
async def test_cancelled_after_k_steps(tmp_path: Path, caplog: pytest.LogCaptureFixture, tee: Std) -> None:
    """Cancelled after k steps of the loop, from 0 to 200, a start of 4 ranks leaves no process and no file."""
    for steps in sample(STEPS, 2, str(tee)):
        logs = tmp_path / str(steps)
        task = asyncio.create_task(start_processes("job", "sh", RANKS, log_dir=logs, tee=tee))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()

        if not await _end(task):
            assert not logs.exists() or list(logs.iterdir()) == []
        assert _alive() == []
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []


async def test_cancelled_at_any_time(tmp_path: Path) -> None:
    """Cancelled at moments spread over the whole of a start, it leaves nothing; some starts are faster."""
    before = asyncio.get_running_loop().time()
    context = await start_processes("job", "sh", RANKS, log_dir=tmp_path, tee=Std.ALL)
    duration = asyncio.get_running_loop().time() - before
    await context.close(signal.SIGKILL)
    finished = []

    for part in sample(range(40), 2):
        task = asyncio.create_task(start_processes("job", "sh", RANKS, log_dir=tmp_path, tee=Std.ALL))
        await asyncio.sleep(duration * part / 30)
        task.cancel()
        finished.append(await _end(task))
        assert _alive() == []

    assert not all(finished)


async def test_cancelled_twice() -> None:
    """A second cancellation, while the first one cleans up, does not make it leave anything."""
    for steps in sample(range(0, 120, 3), 2):
        task = asyncio.create_task(start_processes("job", "sh", RANKS))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        for _ in range(steps % 7):
            await asyncio.sleep(0)
        task.cancel()

        await _end(task)
        assert _alive() == []


async def test_sibling_fails_during_the_start() -> None:
    """A task group that is torn down by a failing sibling leaves nothing of the starts in it."""

    async def fail(steps: int) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        raise ZeroDivisionError

    for steps in sample(range(0, 200, 10), 2):
        with pytest.raises(ExceptionGroup):  # noqa: PT012 - the whole block is what is torn down
            async with asyncio.TaskGroup() as group:
                starts = [group.create_task(start_processes("job", "sh", shells(SLEEP, SLEEP))) for _ in range(2)]
                group.create_task(fail(steps))

        for start in starts:
            await _end(start)
        assert _alive() == []


async def test_timed_out() -> None:
    """``wait_for`` and ``asyncio.timeout`` around a start leave nothing."""
    for milliseconds in range(0, 12, 2):
        with contextlib.suppress(TimeoutError):
            context = await asyncio.wait_for(start_processes("job", "sh", RANKS), milliseconds / 1000)
            await context.close(signal.SIGKILL)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(milliseconds / 1000), start_processes("job", "sh", RANKS):
                pass

        assert _alive() == []


class StuckSpecs(DefaultLogsSpecs):
    """Whose destinations do not come before they are let go."""

    def __init__(self, log_dir: Path) -> None:
        super().__init__(log_dir, Std.ALL)
        self.asked, self.go_on, self.made = threading.Event(), threading.Event(), threading.Event()
        self.dest: LogsDest | None = None

    def reify(self, envs: Mapping[int, Mapping[str, Any]]) -> LogsDest:
        """Wait."""
        self.asked.set()
        self.go_on.wait(PATIENCE)
        dest = self.dest or super().reify(envs)
        self.made.set()
        return dest


async def _removed(specs: StuckSpecs) -> None:
    """Let go of log specifications, and wait until nothing of what they make is there, nor the thread that made it."""
    specs.go_on.set()
    await until(specs.made.is_set)
    await until(lambda: not list(Path(specs.log_dir or "").iterdir()))
    await until(lambda: not any(each.name.startswith("aioelastic") for each in threading.enumerate()))


@pytest.fixture
def stuck(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[StuckSpecs]:
    """Give log specifications that are stuck, and are not waited for as long as usual."""
    monkeypatch.setattr(context_module, "REAP_TIMEOUT", 0.05)
    specs = StuckSpecs(tmp_path)
    yield specs
    specs.go_on.set()


async def test_cancelled_while_the_log_specification_is_stuck(stuck: StuckSpecs) -> None:
    """A start whose ``reify`` does not come back can be cancelled; what that makes later is removed at once."""
    starting = start_processes("job", "true", {0: ()}, logs_specs=stuck)
    task = asyncio.create_task(starting)
    await until(stuck.asked.is_set)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert not stuck.go_on.is_set()
    assert starting.context.state is GroupState.STOPPED
    assert [event.kind async for event in starting.context.events()] == [EventKind.GROUP_ENDED]
    await _removed(stuck)


async def test_cancelled_while_a_log_is_being_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a thread goes on opening after the cancellation are removed when it is through."""
    asked, go_on = threading.Event(), threading.Event()

    def slowly(path: str) -> int:
        asked.set()
        go_on.wait(PATIENCE)
        return open_log(path)

    monkeypatch.setattr(group_logs, "open_log", slowly)
    task = asyncio.create_task(start_processes("job", "sh", RANKS, log_dir=tmp_path, tee=Std.ALL))
    await until(asked.is_set)
    task.cancel()
    await asyncio.wait([task])
    assert list(tmp_path.iterdir())

    go_on.set()
    await until(lambda: not list(tmp_path.iterdir()))
    await until(lambda: not any(each.name.startswith("aioelastic") for each in threading.enumerate()))


async def test_closed_while_the_log_specification_is_stuck(stuck: StuckSpecs) -> None:
    """A close does not wait for it either, and whoever waits for the start learns that the context was closed."""
    starting = start_processes("job", "true", {0: ()}, logs_specs=stuck)
    task = asyncio.create_task(starting)
    await until(stuck.asked.is_set)
    await asyncio.gather(starting.context.close(), starting.context.close(signal.SIGKILL))
    with pytest.raises(ContextStateError, match="was closed while it was being started"):
        await task

    assert not stuck.go_on.is_set()
    await _removed(stuck)


async def test_a_late_log_specification_takes_no_error_file_away(stuck: StuckSpecs, tmp_path: Path) -> None:
    """What comes back after its start was given up leaves alone the files that the next group may have by then."""
    stuck.dest = LogsDest(error_files={0: str(tmp_path / "error.json")})
    task = asyncio.create_task(start_processes("job", "true", {0: ()}, logs_specs=stuck))
    await until(stuck.asked.is_set)
    task.cancel()
    await asyncio.wait([task])

    (tmp_path / "error.json").touch()
    stuck.go_on.set()
    await until(stuck.made.is_set)
    await until(lambda: not any(each.name.startswith("aioelastic") for each in threading.enumerate()))

    assert [path.name for path in tmp_path.iterdir()] == ["error.json"]


class StuckInRemoval(DefaultLogsSpecs):
    """Whose logs cannot be opened, and are not removed before they are let go."""

    def __init__(self) -> None:
        super().__init__()
        self.asked, self.go_on = threading.Event(), threading.Event()

    def reify(self, envs: Mapping[int, Mapping[str, Any]]) -> LogsDest:
        """Give a log that cannot be opened."""
        dest = super().reify(envs)
        dest.stdouts[0] = "/no/such/folder/log"
        return dest

    def discard_temporary(self, dest: LogsDest) -> None:
        """Wait."""
        self.asked.set()
        self.go_on.wait(PATIENCE)
        super().discard_temporary(dest)


async def test_cancelled_while_the_removal_of_logs_is_stuck(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who waits for the events of a start that is given up is let go, also if what it has made cannot be removed."""
    monkeypatch.setattr(context_module, "REAP_TIMEOUT", 0.05)
    specs = StuckInRemoval()
    starting = start_processes("job", "true", {0: ()}, logs_specs=specs)
    task = asyncio.create_task(starting)
    await until(specs.asked.is_set)
    task.cancel()
    await asyncio.wait([task])

    async with asyncio.timeout(PATIENCE):
        assert [event.kind async for event in starting.context.events()] == [EventKind.GROUP_ENDED]
    assert task.cancelled()
    assert not specs.go_on.is_set()
    specs.go_on.set()
    await until(lambda: not any(each.name.startswith("aioelastic") for each in threading.enumerate()))


async def test_another_event_loop_does_not_touch_a_start(tmp_path: Path) -> None:
    """It can neither close nor enter a context that is being started, and the start goes on."""
    stuck = StuckSpecs(tmp_path)
    starting = start_processes("job", "true", {0: ()}, logs_specs=stuck)
    task = asyncio.create_task(starting)
    await until(stuck.asked.is_set)

    async def elsewhere() -> None:
        for refused in (starting.context.close, starting.context.__aenter__):
            with pytest.raises(ContextStateError, match="lives in another event loop"):
                await refused()

    await in_thread(asyncio.run, elsewhere())
    stuck.go_on.set()

    async with await task as context:
        assert (await context.wait()).exits[0].exitcode == 0


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("blocked", [False, True])
def test_program_ends_during_the_start(make_loop: Callable[[], asyncio.AbstractEventLoop], blocked: bool) -> None:
    """A main coroutine that fails while a group is being started leaves nothing, with blocked signals either."""

    async def main(delay: float) -> None:
        starting: asyncio.Task[Any] = asyncio.create_task(start_processes("job", "sh", RANKS))
        await asyncio.sleep(delay)
        assert not starting.cancelled()
        raise ZeroDivisionError

    if blocked:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    try:
        for milliseconds in sample(range(0, 30, 2), 2):
            with pytest.raises(ZeroDivisionError), asyncio.Runner(loop_factory=make_loop) as runner:
                runner.run(main(milliseconds / 1000))
            assert _alive() == []
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_program_ends_while_logs_are_opened(make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """A main coroutine that ends before a group has started leaves no log of it."""

    async def main(steps: int, folder: Path) -> bool:
        starting = asyncio.create_task(start_processes("job", "sh", RANKS, log_dir=folder, tee=Std.ALL))
        for _ in range(steps):
            await asyncio.sleep(0)
        return starting.done()

    unused = []
    for steps in sample(range(60), 2):
        folder = tmp_path / str(steps)
        folder.mkdir()
        with asyncio.Runner(loop_factory=make_loop) as runner:
            is_started = runner.run(main(steps, folder))
        if not is_started:
            unused.append(folder)
    deadline = time.monotonic() + PATIENCE
    while any(list(folder.iterdir()) for folder in unused):
        assert time.monotonic() < deadline
    assert len(unused) > 1


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_program_ends_while_a_function_is_being_started(make_loop: Callable[[], asyncio.AbstractEventLoop]) -> None:
    """A main coroutine that ends while the fork server is asked for a process leaves none waiting, and no pipe open."""

    async def main(delay: float) -> None:
        start = start_processes("job", time.sleep, {0: (60,)}, start_method="forkserver")
        starting: asyncio.Task[Any] = asyncio.create_task(start)
        await asyncio.sleep(delay)
        assert not starting.cancelled()

    for tenths in sample(range(10, 50), 4):
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(main(tenths / 10_000))
