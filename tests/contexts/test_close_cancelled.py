"""What cancellation, exceptions and the end of the event loop leave of a group: nothing."""

import asyncio
import os
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import anyio
import psutil
import pytest

from aioelastic import ContextStateError, DefaultLogsSpecs, GroupState, PContext, Std, SubprocessContext
from tests.helpers.groups import shell_group, written
from tests.helpers.programs import DEAF, PYTHON, SLEEP, shells
from tests.helpers.waiting import is_alive, until

SAYS_BYE = "trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done"


def assert_reaped(context: PContext) -> None:
    """Fail if a rank is there in any form, a zombie included."""
    assert not [pid for pid in context.pids().values() if psutil.pid_exists(pid)]


async def test_cancelling_a_close_kills_reaps_and_raises(tmp_path: Path) -> None:
    """A cancelled close ends in SIGKILL at once and not after its grace, and the cancellation goes on."""
    async with shell_group(tmp_path, DEAF, DEAF) as context:
        began = time.monotonic()
        closing = asyncio.create_task(context.close(timeout=60))
        await until(lambda: context.state is GroupState.STOPPING)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        assert_reaped(context)
        assert time.monotonic() - began < 5


async def test_a_close_cancelled_again_and_again_still_reaps(tmp_path: Path) -> None:
    """More cancellations change nothing: it raises once all is over."""
    async with shell_group(tmp_path, DEAF, DEAF) as context:
        closing = asyncio.create_task(context.close(timeout=60))
        await until(lambda: context.state is GroupState.STOPPING)
        while not closing.done():
            closing.cancel()
            await asyncio.sleep(0)
        assert closing.cancelled()
        assert_reaped(context)


async def test_a_timeout_around_a_close_kills(tmp_path: Path) -> None:
    """``asyncio.timeout`` around a close is a cancellation of it, and is seen as a timeout outside."""
    async with shell_group(tmp_path, DEAF) as context:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                await context.close(timeout=60)
        assert_reaped(context)


async def test_a_cancel_scope_around_a_close_kills(tmp_path: Path) -> None:
    """The same holds for anyio, whose cancellation is delivered again and again."""
    async with shell_group(tmp_path, DEAF) as context:
        with anyio.move_on_after(0.1) as scope:
            await context.close(timeout=60)
        assert scope.cancelled_caught
        assert_reaped(context)


async def test_cancelling_one_close_kills_for_the_others_too(tmp_path: Path) -> None:
    """The other closes return as soon as the group is gone, and are not cancelled."""
    async with shell_group(tmp_path, DEAF) as context:
        first, other = (asyncio.create_task(context.close(timeout=60)) for _ in range(2))
        await until(lambda: context.state is GroupState.STOPPING)
        first.cancel()
        await asyncio.wait_for(other, 5)
        with pytest.raises(asyncio.CancelledError):
            await first


async def test_an_exception_inside_closes_and_goes_on(tmp_path: Path) -> None:
    """Leaving the block by an exception closes politely, and raises that exception as it is."""
    contexts = []

    async def leave() -> None:
        async with shell_group(tmp_path, SAYS_BYE) as context:
            contexts.append(context)
            raise KeyError("own")

    with pytest.raises(KeyError, match="own"):
        await leave()
    assert_reaped(contexts[0])
    assert written(contexts[0], 0).endswith("bye\n")


async def test_a_cancelled_task_closes_politely(tmp_path: Path) -> None:
    """Cancelling the task ends what it awaits inside the block; the close that follows has its grace."""
    contexts = []

    async def work() -> None:
        async with shell_group(tmp_path, SAYS_BYE) as context:
            contexts.append(context)
            await context.wait()

    working = asyncio.create_task(work())
    await until(lambda: contexts)
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    assert_reaped(contexts[0])
    assert written(contexts[0], 0).endswith("bye\n")


async def test_a_cancel_scope_around_the_whole_block_leaves_nothing(tmp_path: Path) -> None:
    """A scope of anyio stays cancelled within ``__aexit__``, so that the close kills at once."""
    contexts = []
    began = time.monotonic()
    with anyio.move_on_after(60) as scope:
        async with shell_group(tmp_path, DEAF, DEAF) as context:
            contexts.append(context)
            scope.deadline = anyio.current_time()
            await context.wait()
    assert scope.cancelled_caught
    assert time.monotonic() - began < 10
    assert_reaped(contexts[0])


async def test_fail_after_around_the_whole_block_is_a_timeout(tmp_path: Path) -> None:
    """The exception of the scope is the one that is seen outside."""
    contexts = []
    with pytest.raises(TimeoutError), anyio.fail_after(60) as scope:  # noqa: PT012 - the whole block is what ends
        async with shell_group(tmp_path, DEAF) as context:
            contexts.append(context)
            scope.deadline = anyio.current_time()
            await context.wait()
    assert_reaped(contexts[0])


async def test_a_cancelled_close_leaves_no_temporary_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The directory of a group without log files is removed then, too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    async with shell_group(tmp_path, SLEEP, redirects=Std.NONE, log_dir=None) as context:
        assert list(tmp_path.iterdir())
        closing = asyncio.create_task(context.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
    await until(lambda: not list(tmp_path.iterdir()))


@pytest.mark.parametrize("steps", [0, 1, 2, 5, 10, 20, 30, 40, 60, 100])
@pytest.mark.half
async def test_a_close_during_the_start_leaves_nothing(tmp_path: Path, steps: int) -> None:
    """Wherever the start stands, the close ends it, and whoever starts it learns that it was closed."""
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, report: reports.append(report))
    specs = DefaultLogsSpecs(log_dir=tmp_path, redirects=Std.ALL)
    context = SubprocessContext("test", "sh", shells(*[SLEEP] * 4), None, specs)
    starting = asyncio.create_task(context.start())
    for _ in range(steps):
        await asyncio.sleep(0.0002 if steps > 20 else 0)
    in_time = not starting.done()
    await asyncio.wait_for(context.close(), 10)
    (outcome,) = await asyncio.gather(starting, return_exceptions=True)

    assert isinstance(outcome, ContextStateError) or (outcome is None and not in_time)
    assert_reaped(context)
    assert context.state is GroupState.STOPPED
    assert reports == []


DRIVER = """if True:
    import asyncio, sys, uvloop
    from pathlib import Path
    from aioelastic import Std, start_processes

    async def main():
        args = {{0: ("-c", {deaf!r}), 1: ("-c", "sleep 60 & exit 0"), 2: ("-c", {deaf!r})}}
        context = await start_processes("left", "sh", args, log_dir="logs", redirects=Std.OUT)
        while any("ready" not in Path(context.stdouts[rank]).read_text() for rank in (0, 2)):
            await asyncio.sleep(0.01)
        print(*context.pids().values(), flush=True)
        {ending}

    {run}.run(main())
"""

ENDINGS = {
    "returning": "return",
    "an exception": "raise ValueError",
    "sys.exit": "sys.exit(3)",
    "waiting": "await context.wait()",
    "closing": "await context.close(timeout=60)",
    "a task waits": "asyncio.create_task(context.wait()); await asyncio.sleep(0)",
    "a task closes": "asyncio.create_task(context.close(timeout=60)); await asyncio.sleep(0)",
}


@pytest.fixture(params=["asyncio", "uvloop"])
def driver(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[str]]:
    """Give the start of a command that runs a program like `DRIVER` on one kind of loop; nothing may be left of it."""
    yield [PYTHON, "-X", "dev", "-W", "error", "-c", request.param]
    left = [each.pid for each in psutil.process_iter() if _runs_in(each, tmp_path)]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


def _runs_in(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE and process.cwd() == str(folder)
    except psutil.Error:
        return False


@pytest.mark.parametrize("how", ENDINGS)
@pytest.mark.half
def test_the_end_of_the_loop_kills_what_was_left_open(driver: list[str], tmp_path: Path, how: str) -> None:
    """However ``run`` ends, or is interrupted by ^C, no rank and no leftover of a rank is alive afterwards."""
    *command, run = driver
    program = DRIVER.format(deaf=DEAF, ending=ENDINGS[how], run=run)
    with subprocess.Popen(
        [*command, program], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        pids = [int(word) for word in process.stdout.readline().split()]
        if how in {"waiting", "closing"}:
            process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=20)
    expected = {"waiting": -signal.SIGINT, "closing": -signal.SIGINT, "sys.exit": 3, "an exception": 1}
    assert process.returncode == expected.get(how, 0)
    assert len(pids) == 3, errors
    assert not [pid for pid in pids if is_alive(pid)]
    assert "never retrieved" not in errors
    assert "ResourceWarning" not in errors


async def test_a_context_that_outlives_its_loop_says_so(tmp_path: Path) -> None:
    """Waiting for a group whose supervisor was cancelled with its loop is an error and not a hang."""
    async with shell_group(tmp_path, SLEEP) as context:
        for task in asyncio.all_tasks():
            if task.get_name() == "aioelastic: test":
                task.cancel()
        with pytest.raises(ContextStateError, match="loop"):
            await context.wait()
        assert_reaped(context)
