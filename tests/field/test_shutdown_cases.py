"""Cases from the field: groups that were told to end."""

import asyncio
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from aioelastic import ExitCause, PContext, SubprocessHandler, get_subprocess_handler, start_processes
from aioelastic._contexts import context as context_module
from aioelastic._processes.members import Member
from aioelastic._processes.system_table import SystemTable
from aioelastic._supervision import ladder as ladder_module
from tests.helpers.groups import FAILS_ON_GO, WAITS_FOR, python_group, shell_group, spoken_pid
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import is_alive, until, until_written

DEAF_CHILD = "(trap '' TERM INT HUP; echo child $(sh -c 'echo $PPID'); echo ready; while :; do sleep 60; done) & "
"""Starts a child that ignores what its leader leaves for."""

CHECKPOINTS = "trap 'echo saving; sleep 3; echo saved; exit 0' TERM; echo ready; while :; do sleep 0.05; done"
"""Needs three seconds to leave."""


@pytest.mark.parametrize(
    "leader",
    [
        "trap 'exit 0' TERM; while :; do sleep 0.05; done",
        "exec sleep 60",
        "exit 0",
        "trap 'exit 7' TERM; wait; exit 7",
    ],
    ids=["leaves politely", "dies of the signal", "had succeeded", "waits for the child"],
)
async def test_a_child_that_ignores_the_signal_does_not_outlive_a_close(tmp_path: Path, leader: str) -> None:
    """A leader that exits on TERM does not drop the KILL timer of its group.

    https://github.com/F1bonacc1/process-compose/issues/520, https://github.com/circus-tent/circus/issues/1044
    """
    async with shell_group(tmp_path, DEAF_CHILD + leader, SLEEP) as context:
        child = spoken_pid(context, 0)
        assert is_alive(child)
        began = time.monotonic()
        await context.close(timeout=1)

        assert 0.99 <= time.monotonic() - began < 4
        assert not is_alive(child)
        assert SystemTable().members(dict.fromkeys(context.pids().values(), True)) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
async def test_the_same_holds_for_other_signals(tmp_path: Path, number: signal.Signals) -> None:
    """The kind of signal makes no difference to what a deaf child is owed.

    https://github.com/F1bonacc1/process-compose/issues/520
    """
    async with shell_group(tmp_path, DEAF_CHILD + "exec sleep 60", death_sig=number) as context:
        child = spoken_pid(context, 0)
        await context.close(timeout=0.3)
        assert not is_alive(child)


async def test_a_deaf_child_does_not_outlive_a_failed_group(tmp_path: Path) -> None:
    """A group that ends because a rank failed is ended as thoroughly as one that is closed.

    https://github.com/circus-tent/circus/issues/1044
    """
    deaf_child = DEAF_CHILD.replace("echo ready;", "echo ready; touch deaf;")
    fails_then = WAITS_FOR.format(sign="deaf") + "; exit 3"
    async with shell_group(tmp_path, deaf_child + fails_then, SLEEP, shutdown_timeout=0.5) as context:
        result = await context.wait(timeout=20)
        assert result is not None
        assert list(result.failures) == [0]
        assert not is_alive(spoken_pid(context, 0))


async def test_ranks_outlive_the_thread_that_asked_for_them(tmp_path: Path) -> None:
    """Nothing ties a rank to a thread: when the one that requested it ends, it runs on.

    https://github.com/containers/bubblewrap/issues/692
    """
    loop = asyncio.get_running_loop()
    contexts: list[PContext] = []

    def request() -> None:
        starting = start_processes("test", "sh", shells(SLEEP, SLEEP))
        contexts.append(asyncio.run_coroutine_threadsafe(starting, loop).result(30))

    thread = threading.Thread(target=request)
    thread.start()
    await until(lambda: not thread.is_alive())
    thread.join()
    (context,) = contexts
    assert await context.wait(timeout=0.2) is None
    assert all(is_alive(pid) for pid in context.pids().values())
    await context.close()


def test_ranks_started_in_a_short_lived_threads_loop_outlive_the_thread(tmp_path: Path) -> None:
    """A loop that moves on to another thread takes its running group along.

    https://github.com/containers/bubblewrap/issues/692
    """
    # asyncio's and uvloop's child watching need no main thread; the loop itself is driven by one thread after another.
    loop = asyncio.new_event_loop()
    contexts: list[PContext] = []

    async def start() -> None:
        contexts.append(await start_processes("test", "sh", shells(SLEEP, f"echo hi; {SLEEP}")))

    thread = threading.Thread(target=lambda: loop.run_until_complete(start()))
    thread.start()
    thread.join()

    async def finish() -> None:
        (context,) = contexts
        assert await context.wait(timeout=0.2) is None
        assert all(is_alive(pid) for pid in context.pids().values())
        os.kill(context.pids()[1], signal.SIGKILL)
        result = await context.wait(timeout=20)
        assert result is not None
        assert list(result.failures) == [1]
        await context.close()

    try:
        loop.run_until_complete(finish())
        loop.run_until_complete(loop.shutdown_default_executor())
    finally:
        loop.close()


async def test_a_grace_that_is_long_enough_lets_a_rank_save(tmp_path: Path) -> None:
    """A rank that needs 3 s after TERM has them when 5 s are given, by the context or by a close.

    https://github.com/pytorch/pytorch/issues/119856, https://github.com/pytorch/pytorch/issues/68258
    """
    async with (
        shell_group(tmp_path / "a", CHECKPOINTS, cwd=tmp_path, shutdown_timeout=5) as by_context,
        shell_group(tmp_path / "b", CHECKPOINTS, cwd=tmp_path, shutdown_timeout=0) as by_close,
        shell_group(tmp_path / "c", CHECKPOINTS, FAILS_ON_GO, cwd=tmp_path, shutdown_timeout=5) as by_failure,
    ):
        (tmp_path / "go").touch()
        await asyncio.gather(by_context.close(), by_close.close(timeout=5), by_failure.wait())
        for context in (by_context, by_close, by_failure):
            assert Path(context.stdouts[0]).read_text() == "ready\nsaving\nsaved\n"
            result = await context.wait(timeout=0)
            assert result is not None
            assert (result.exits[0].exitcode, result.exits[0].cause) == (0, ExitCause.STOPPED)


async def test_a_grace_that_is_too_short_kills_a_rank_that_saves(tmp_path: Path) -> None:
    """The same rank is killed when 1 s is given, by the context or by a close.

    https://github.com/pytorch/pytorch/issues/119856, https://github.com/pytorch/pytorch/issues/68258
    """
    async with (
        shell_group(tmp_path / "a", CHECKPOINTS, cwd=tmp_path, shutdown_timeout=1) as by_context,
        shell_group(tmp_path / "b", CHECKPOINTS, cwd=tmp_path, shutdown_timeout=60) as by_close,
        shell_group(tmp_path / "c", CHECKPOINTS, FAILS_ON_GO, cwd=tmp_path, shutdown_timeout=1) as by_failure,
    ):
        (tmp_path / "go").touch()
        await asyncio.gather(by_context.close(), by_close.close(timeout=1), by_failure.wait())
        for context in (by_context, by_close, by_failure):
            assert Path(context.stdouts[0]).read_text() == "ready\nsaving\n"
            result = await context.wait(timeout=0)
            assert result is not None
            assert (result.exits[0].signal, result.exits[0].cause) == ("SIGKILL", ExitCause.STOPPED)


class NeverGone(SystemTable):
    """The real table, in which one process never ends (as in uninterruptible sleep)."""

    stuck: int | None = None

    def members(self, leaders: Any, groups: Any = ()) -> list[Member]:
        """See `SystemTable`."""
        found = [member for member in super().members(leaders, groups) if member.pid != self.stuck]
        return [*found, Member(self.stuck, self.stuck)] if self.stuck is not None and self.stuck in leaders else found

    async def wait_gone(self, pids: Any) -> None:
        """See `SystemTable`."""
        await super().wait_gone([pid for pid in pids if pid != self.stuck])
        await asyncio.sleep(0.01)


@pytest.mark.parametrize("how", ["close", "failure", "cancelled close"])
async def test_a_process_that_cannot_be_killed_does_not_hang_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, how: str
) -> None:
    """``close`` and ``wait`` return within their bounds, with the process named in the result and in a warning.

    https://github.com/pytorch/pytorch/issues/185414
    """
    monkeypatch.setattr(context_module, "SystemTable", NeverGone)
    monkeypatch.setattr(ladder_module, "REAP_TIMEOUT", 0.5)
    fails = "echo ready; while ! [ -e go ]; do sleep 0.01; done; exit 3"
    async with shell_group(tmp_path, SLEEP, fails, shutdown_timeout=0.2) as context:
        stuck = context.pids()[0]
        monkeypatch.setattr(NeverGone, "stuck", stuck)
        began = time.monotonic()
        if how == "close":
            await context.close()
        elif how == "failure":
            (tmp_path / "go").touch()
        else:
            closing = asyncio.create_task(context.close(timeout=60))
            await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
        result = await context.wait(timeout=20)

        assert time.monotonic() - began < 5
        assert result is not None
        assert result.survivors == {0: [stuck]}
        assert list(result.failures) == ([1] if how == "failure" else [])
        assert len(caplog.records) == 1
        assert str(stuck) in caplog.text


async def test_ranks_that_were_stopped_are_not_causes(tmp_path: Path) -> None:
    """Of four ranks of which #2 exits with a traceback, one is a failure, and three were stopped by us.

    https://github.com/pytorch/pytorch/issues/160908, https://github.com/pytorch/pytorch/issues/88251
    """
    sleeps, raises = "import time; time.sleep(60)", "def step():\n    raise ValueError('bad batch')\nstep()"
    async with python_group(tmp_path, sleeps, sleeps, raises, sleeps) as context:
        result = await context.wait(timeout=30)

        assert result is not None
        assert list(result.failures) == [2]
        assert "Traceback (most recent call last)" in result.failures[2].message
        assert "ValueError: bad batch" in result.failures[2].message
        causes = {rank: each.cause for rank, each in result.exits.items()}
        assert causes == {2: ExitCause.ENDED, **dict.fromkeys((0, 1, 3), ExitCause.STOPPED)}
        with pytest.raises(Exception, match=r"1 rank failed[\s\S]*3 ranks \(0-1, 3\)"):
            result.raise_for_failures()


async def test_ranks_that_fail_because_they_were_stopped_are_not_causes(tmp_path: Path) -> None:
    """A rank that prints a traceback and exits with 1 on our signal is a consequence.

    https://github.com/pytorch/pytorch/issues/160908
    """
    stopped = (
        "import signal, time\ndef stop(*_): raise RuntimeError('Connection closed by peer')\n"
        "signal.signal(signal.SIGTERM, stop)\nprint('ready', flush=True)\nwhile True: time.sleep(0.05)"
    )
    raises = "import os, time\nprint('ready', flush=True)\nwhile not os.path.exists('go'): time.sleep(0.01)\n1 / 0"
    async with python_group(tmp_path, stopped, raises, stopped) as context:
        (tmp_path / "go").touch()
        result = await context.wait(timeout=30)

        assert result is not None
        assert list(result.failures) == [1]
        assert [result.exits[rank].exitcode for rank in (0, 2)] == [1, 1]


async def test_a_single_handler_closes_the_whole_group(tmp_path: Path) -> None:
    """``SubprocessHandler.close`` reaches a child whose leader has left already.

    https://github.com/circus-tent/circus/issues/1044
    """
    log = tmp_path / "log"
    script = DEAF_CHILD + "exit 0"
    handler: SubprocessHandler = await get_subprocess_handler("sh", ("-c", script), {}, str(log), None, 0)
    assert await handler.wait() == 0
    await until_written(log, "ready")
    child = int(log.read_text().split()[1])
    handler.close()
    assert is_alive(child)
    handler.close(signal.SIGKILL)
    while is_alive(child):
        await asyncio.sleep(0.001)
