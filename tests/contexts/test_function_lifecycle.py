"""The life and the end of function ranks: who is signalled, what is left, what is said of it."""

import asyncio
import os
import signal
import time
from ast import literal_eval
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import psutil
import pytest

from aioelastic import (
    ContextStateError,
    DefaultLogsSpecs,
    ExitCause,
    GroupState,
    MultiprocessContext,
    PContext,
    RunProcsResult,
    start_processes,
)
from tests.helpers import function_worlds as worlds
from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.function_groups import FORK_WARNING, METHODS, all_ready, function_group, ready
from tests.helpers.groups import until_status
from tests.helpers.leaks import descendants
from tests.helpers.sampling import sample
from tests.helpers.waiting import is_alive, until

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.one_method, pytest.mark.half]

each_method = pytest.mark.parametrize("method", METHODS)
each_loop = pytest.mark.parametrize("loop", LOOPS)


async def _within(seconds: float, action: Awaitable[object]) -> None:
    """Do something that has to be over in time."""
    began = time.monotonic()
    await action
    assert time.monotonic() - began < seconds


async def _result_of(context: PContext) -> RunProcsResult:
    """Give the result of a group that ends now."""
    result = await context.wait(timeout=20)
    assert result is not None
    return result


def _told(folder: Path, rank: int) -> dict[str, Any]:
    """Read what a rank has told in its file."""
    facts: dict[str, Any] = literal_eval(Path(ready(folder, rank)).read_text())
    return facts


class TestSignals:
    """What ends a rank."""

    @each_method
    async def test_a_rank_in_c_code_ends_at_once(self, method: str, tmp_path: Path) -> None:
        """A rank that hangs in C code and never comes back to Python dies of the first signal."""
        async with function_group(method, tmp_path, worlds.hang_until_killed) as context:
            await _within(10, context.close(timeout=60))
            exited = (await _result_of(context)).exits[0]

        assert (exited.signal, exited.cause) == ("SIGTERM", ExitCause.STOPPED)

    @each_method
    async def test_a_deaf_rank_is_killed_after_the_timeout(self, method: str, tmp_path: Path) -> None:
        """A function that ignores SIGTERM gets SIGKILL when the grace is over, and no sooner."""
        async with function_group(method, tmp_path, worlds.be_deaf, worlds.be_deaf) as context:
            began = time.monotonic()
            await _within(5, context.close(timeout=0.5))
            assert time.monotonic() - began > 0.49
            exits = (await _result_of(context)).exits

        assert {(each.signal, each.cause) for each in exits.values()} == {("SIGKILL", ExitCause.STOPPED)}

    @each_method
    async def test_a_handler_of_the_function_runs(self, method: str, tmp_path: Path) -> None:
        """A function that handles the group's own death signal leaves well, and is no failure."""
        told = tmp_path / "told"
        async with start_processes(
            "job",
            worlds.tell_signal,
            {0: (ready(tmp_path, 0), str(told), int(signal.SIGUSR1))},
            start_method=method,
            death_sig=signal.SIGUSR1,
        ) as context:
            await all_ready(tmp_path, [0])
            await _within(10, context.close(timeout=60))
            result = await _result_of(context)

        assert literal_eval(told.read_text()) == {"number": signal.SIGUSR1}
        assert (result.exits[0].exitcode, result.exits[0].cause) == (0, ExitCause.STOPPED)
        assert result.failures == {}

    @each_method
    async def test_a_stopped_rank_hears_the_signal(self, method: str, tmp_path: Path) -> None:
        """A rank that somebody has stopped is continued after the signal, and so ends of it."""
        async with function_group(method, tmp_path, worlds.sleep_until_told) as context:
            os.kill(context.pids()[0], signal.SIGSTOP)
            await until_status(context.pids()[0], psutil.STATUS_STOPPED)
            await _within(10, context.close(timeout=60))

            assert (await _result_of(context)).exits[0].signal == "SIGTERM"

    @each_method
    async def test_a_signal_from_elsewhere(self, method: str, tmp_path: Path) -> None:
        """A rank that somebody else kills is the failure, with the signal; the others are stopped."""
        async with function_group(method, tmp_path, worlds.sleep_until_told, worlds.sleep_until_told) as context:
            os.kill(context.pids()[1], signal.SIGKILL)
            result = await _result_of(context)

        assert result.exits[1].cause is ExitCause.KILLED
        assert list(result.failures) == [1]
        assert (result.failures[1].exitcode, result.failures[1].signal_name()) == (-9, "SIGKILL")
        assert result.exits[0].cause is ExitCause.STOPPED


class TestLeftovers:
    """Children that a function leaves behind."""

    @each_method
    @pytest.mark.parametrize("deaf", [False, True])
    @pytest.mark.parametrize("fail", [False, True])
    async def test_they_end_with_the_group(self, method: str, deaf: bool, fail: bool, tmp_path: Path) -> None:
        """Forked children and commands are gone when the group has succeeded or failed, deaf ones too."""
        async with start_processes(
            "job", worlds.call_leaving_children, {0: (ready(tmp_path, 0), deaf, fail)}, start_method=method,
            shutdown_timeout=0.3,
        ) as context:  # fmt: skip
            result = await _result_of(context)
            children = _told(tmp_path, 0)["children"]
            assert len(children) == 2
            assert not any(map(is_alive, children))

        assert result.is_failed() is fail

    @each_method
    async def test_they_end_at_a_close(self, method: str, tmp_path: Path) -> None:
        """Children of a rank that has returned while another one runs are ended by the close."""
        async with start_processes(
            "job",
            worlds.call,
            {
                0: (worlds.call_leaving_children, ready(tmp_path, 0), False, False),
                1: (worlds.sleep_until_told, ready(tmp_path, 1)),
            },
            start_method=method,
        ) as context:
            await all_ready(tmp_path, [0, 1])
            await until(lambda: "1 of 2" in repr(context), "the end of rank 0")
            children = _told(tmp_path, 0)["children"]
            assert all(map(is_alive, children))
            await _within(10, context.close(timeout=60))

            assert not any(map(is_alive, children))
            assert (await _result_of(context)).exits[0].cause is ExitCause.ENDED


class TestEarlyClose:
    """A close that comes before the ranks are what they will be."""

    @each_method
    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGKILL])
    async def test_right_after_the_start(self, method: str, number: signal.Signals) -> None:
        """Closed at any early moment, before the ranks have opened their sessions too, all of them end at once."""
        before = set(descendants("self"))
        for turns in sample(range(10), 2):
            context = await start_processes("job", worlds.pause, {0: (), 1: ()}, start_method=method)
            for _ in range(turns):
                await asyncio.sleep(0.001)
            # Python itself loses the exception of an interrupt that comes within some callbacks of its imports.
            grace = 1 if number == signal.SIGINT else 60
            await _within(10, context.close(number, timeout=grace))

            assert [pid for pid in descendants("self") if pid not in before and is_alive(pid)] == []
            assert not any(map(is_alive, context.pids().values()))

    @each_method
    async def test_while_it_starts(self, method: str) -> None:
        """Closed while ranks are being started, the start says so, or was faster; nothing is left."""
        for turns in sample(range(0, 60, 4), 2):
            context = MultiprocessContext(
                "job", worlds.pause, dict.fromkeys(range(3), ()), None, method, DefaultLogsSpecs()
            )
            starting = asyncio.create_task(context.start())
            for _ in range(turns):
                await asyncio.sleep(0)
            await _within(10, context.close(timeout=60))
            [outcome] = await asyncio.gather(starting, return_exceptions=True)

            assert outcome is None or isinstance(outcome, ContextStateError)
            assert not any(map(is_alive, context.pids().values()))


class TestReapedElsewhere:
    """Another part of the program takes a status."""

    @pytest.mark.parametrize("method", ["spawn", "fork"])
    async def test_a_rank(self, method: str, tmp_path: Path) -> None:
        """The exit says that somebody else has reaped the rank; no code is invented."""
        async with function_group(method, tmp_path, worlds.sleep_until_told) as context:
            pid = context.pids()[0]
            os.kill(pid, signal.SIGKILL)
            assert os.waitpid(pid, 0) == (pid, signal.SIGKILL)
            result = await _result_of(context)

        exited = result.exits[0]
        assert exited.reaped_elsewhere
        # Newer kernels keep a copy of the code.
        assert (exited.exitcode, exited.cause) in {(None, ExitCause.UNKNOWN), (-9, ExitCause.KILLED)}
        assert list(result.failures) == [0]

    @each_loop
    @pytest.mark.parametrize("reap", [False, True])
    def test_the_fork_server(self, loop: str, reap: bool, tmp_path: Path) -> None:
        """Killed, or reaped by number, the fork server takes its ranks' codes along; the next group gets a new one."""
        program = f"""
from tests.helpers import function_worlds as worlds
from aioelastic._processes import fork_server
async def main():
    args = {{0: (sys.argv[2] + "/ready",), 1: (sys.argv[2] + "/ready1",)}}
    async with start_processes("job", worlds.sleep_until_told, args, start_method="forkserver") as context:
        while not (Path(args[0][0]).exists() and Path(args[1][0]).exists()):
            await asyncio.sleep(0.01)
        server = fork_server._server._forkserver_pid
        os.kill(server, signal.SIGKILL)
        if {reap}:
            os.waitpid(server, 0)
        assert await context.wait(0.1) is None
        os.kill(context.pids()[1], signal.SIGKILL)
        result = await context.wait(20)
        assert result.exits[1].exitcode is None and result.exits[1].cause.name == "UNKNOWN", result
        assert result.exits[0].cause.name == "STOPPED" and list(result.failures) == [1], result
    for pid in context.pids().values():
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            continue
        assert Path(f"/proc/{{pid}}/stat").read_text().split()[2] == "Z"
    async with start_processes("job", worlds.double, {{0: (1,)}}, start_method="forkserver") as context:
        result = await context.wait(20)
    assert result.return_values == {{0: 2}}, result
    assert fork_server._server._forkserver_pid != server
run(main)
"""
        assert run_driver(program, loop, tmp_path) == ""


class TestContext:
    """What the caller holds."""

    @each_method
    async def test_made_with_the_seeds_arguments(self, method: str) -> None:
        """A context made by position runs when it is started; it is new until then."""
        context = MultiprocessContext(
            "job", worlds.double, {0: (1,), 1: (2,)}, {0: {}, 1: {}}, method, DefaultLogsSpecs(), {0: "x"}, None, None,
            None,
        )  # fmt: skip
        assert (context.state, context.pids(), context.start_method) == (GroupState.NEW, {}, method)

        await context.start()
        result = await _result_of(context)
        await context.close()

        assert result.return_values == {0: 2, 1: 4}
        assert context.state is GroupState.SUCCEEDED

    @each_method
    async def test_steps_in_tasks_of_their_own(self, method: str, tmp_path: Path) -> None:
        """Started in one task, waited for in another, closed in a third: each is done when it has done its part."""
        go = str(tmp_path / "go")

        async def make() -> PContext:
            args = {0: (ready(tmp_path, 0), go)}
            return await start_processes("job", worlds.wait_and_return, args, start_method=method)

        context = await asyncio.create_task(make())
        waiting = asyncio.create_task(context.wait())
        assert await asyncio.create_task(context.wait(0)) is None
        Path(go).touch()
        result = await waiting
        await asyncio.create_task(context.close())

        assert result is not None
        assert result.return_values == {0: "returned"}

    @each_method
    async def test_starting_twice(self, method: str, tmp_path: Path) -> None:
        """A second start is an error, during and after the first group, which it does not touch."""
        async with function_group(method, tmp_path, worlds.sleep_until_told) as context:
            with pytest.raises(ContextStateError, match="'job' was started before: make a new one"):
                await context.start()
            assert is_alive(context.pids()[0])
            await context.close(signal.SIGKILL)

        with pytest.raises(ContextStateError, match="'job' was closed"):
            await context.start()

    @each_method
    async def test_repr(self, method: str, tmp_path: Path) -> None:
        """The text of a context says its kind, its name, what runs, and what is wrong."""
        async with function_group(method, tmp_path, worlds.sleep_until_told, worlds.sleep_until_told) as context:
            assert repr(context) == "<MultiprocessContext 'job': running, 2 of 2 ranks running>"
            os.kill(context.pids()[1], signal.SIGKILL)
            await _result_of(context)
            assert repr(context) == (
                "<MultiprocessContext 'job': failed, 0 of 2 ranks running, "
                "rank 1 killed by a signal from elsewhere, rank 0 stopped by us>"
            )

    @each_method
    async def test_zero_ranks(self, method: str) -> None:
        """A group without ranks succeeds at once."""
        async with start_processes("job", worlds.never, {}, start_method=method) as context:
            result = await _result_of(context)

        assert (result.return_values, result.exits, result.failures) == ({}, {}, {})
        assert context.state is GroupState.SUCCEEDED
