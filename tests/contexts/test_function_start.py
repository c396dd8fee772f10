"""Starting function ranks: cancelled, failing, too many, and with much to hand over."""

import asyncio
import contextlib
import logging
import os
import signal
import sys
from pathlib import Path

import pytest

from aioelastic import ExitCause, PContext, Std, start_processes
from tests.helpers import function_worlds as worlds
from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.function_groups import FORK_WARNING, METHODS, run_functions
from tests.helpers.leaks import descendants
from tests.helpers.sampling import sample
from tests.helpers.waiting import is_alive

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.one_method, pytest.mark.half]

each_method = pytest.mark.parametrize("method", METHODS)
each_loop = pytest.mark.parametrize("loop", LOOPS)
pickling_methods = pytest.mark.parametrize("method", ["spawn", "forkserver"])
has_fork_warning = pytest.mark.skipif(sys.version_info < (3, 12), reason="older Pythons do not warn of forks")

RANKS: dict[int, tuple[()]] = dict.fromkeys(range(4), ())
LARGE = 50_000_000
"""Bytes of an argument that no pipe holds."""

PRELUDE = """
from tests.helpers import function_worlds as worlds
from tests.helpers.leaks import descendants, Snapshot
from tests.helpers.waiting import is_alive
import contextlib, threading, warnings

async def warm_up(method):
    async with start_processes("warm", worlds.double, {0: (1,)}, start_method=method) as context:
        result = await context.wait()
    assert result.return_values == {0: 2}, result
    return Snapshot.take()
"""
"""Begins a driver: what is started once per program is started, and stock is taken."""


def _alive() -> set[int]:
    """Give the pids of our descendants that run, of the fork server and the resource tracker too."""
    return {pid for pid in descendants("self") if is_alive(pid)}


async def _end(task: "asyncio.Task[PContext]") -> None:
    """See a cancelled start to its end; close what it gave if it was faster."""
    with contextlib.suppress(asyncio.CancelledError):
        context = await task
        await context.close(signal.SIGKILL)


class TestCancelled:
    """A start that is cancelled leaves nothing."""

    @each_method
    @pytest.mark.parametrize("tee", [Std.NONE, Std.ALL])
    async def test_after_k_steps(self, method: str, tee: Std, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
        """Cancelled after k steps of the loop, a start of 4 ranks leaves no process, and complains of nothing."""
        before = _alive()
        for steps in sample(range(0, 200, 5), 2):
            task = asyncio.create_task(
                start_processes("job", worlds.pause, RANKS, start_method=method, log_dir=tmp_path, tee=tee)
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()

            await _end(task)
            assert _alive() - before == set()
        assert [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING] == []

    @each_method
    async def test_at_any_time(self, method: str) -> None:
        """Cancelled at moments spread over the whole of a start, it leaves nothing."""
        before = _alive()
        began = asyncio.get_running_loop().time()
        context = await start_processes("job", worlds.pause, RANKS, start_method=method)
        duration = asyncio.get_running_loop().time() - began
        await context.close(signal.SIGKILL)

        for part in sample(range(20), 2):
            task = asyncio.create_task(start_processes("job", worlds.pause, RANKS, start_method=method))
            await asyncio.sleep(duration * part / 15)
            task.cancel()
            await _end(task)
            assert _alive() - before == set()

    @each_loop
    @each_method
    def test_silently(self, loop: str, method: str) -> None:
        """Nothing is printed by ranks, or by the fork server, whose start was cancelled."""
        program = f"""{PRELUDE}
async def main():
    await warm_up({method!r})
    for steps in range(0, 120, 6):
        task = asyncio.create_task(start_processes("job", worlds.pause, dict.fromkeys(range(3), ()),
                                                   start_method={method!r}))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            context = await task
            await context.close(signal.SIGKILL)
run(main)
"""
        assert run_driver(program, loop) == ""


class TestFailing:
    """A start that the system refuses leaves nothing."""

    @each_loop
    @each_method
    def test_out_of_descriptors(self, loop: str, method: str) -> None:
        """When descriptors run out at rank k, one typed error says so, and ranks 0 to k-1 are gone with their pipes."""
        program = f"""{PRELUDE}
def lowest():
    number = os.dup(0)
    os.close(number)
    return number

async def main():
    before = await warm_up({method!r})
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    context = MultiprocessContext("job", worlds.pause, dict.fromkeys(range(6), ()), None, {method!r},
                                  DefaultLogsSpecs())
    starting = asyncio.ensure_future(context.start())
    while len(context.pids()) < 2:
        await asyncio.sleep(0)
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest() + 2, hard))
    try:
        await starting
    except RankStartError as error:
        assert error.errno == 24 and 2 <= error.local_rank <= 5, error
        assert "worlds.pause()" in str(error) and "ulimit -n" in str(error), error
    else:
        raise AssertionError("it started")
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert not any(map(is_alive, context.pids().values()))
    await context.close()
    await before.compare_until_clean_async()
run(main)
"""
        assert run_driver(program, loop) == ""

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root may become somebody without processes")
    @each_loop
    def test_out_of_processes(self, loop: str) -> None:
        """When the limit of processes is met at rank k of a fork, the error is EAGAIN and all the rest is gone."""
        program = f"""{PRELUDE}
async def main():
    before = await warm_up("fork")
    os.setgroups([])
    os.setresuid(54321, 54321, 54321)
    _, hard = limits = resource.getrlimit(resource.RLIMIT_NPROC)
    # Not guarded: this user may not be allowed to execute the interpreter.
    context = MultiprocessContext("job", worlds.pause, dict.fromkeys(range(6), ()), None, "fork", DefaultLogsSpecs(),
                                  orphan_guard=False)
    starting = asyncio.ensure_future(context.start())
    while len(context.pids()) < 2:
        await asyncio.sleep(0)
    resource.setrlimit(resource.RLIMIT_NPROC, (1, hard))
    try:
        await asyncio.wait_for(starting, 20)
    except RankStartError as error:
        assert error.errno == 11 and isinstance(error, BlockingIOError) and error.local_rank >= 2, error
    else:
        raise AssertionError("it started")
    finally:
        resource.setrlimit(resource.RLIMIT_NPROC, limits)
    assert not any(map(is_alive, context.pids().values()))
    await before.compare_until_clean_async()
run(main)
"""
        assert run_driver(program, loop) == ""

    @each_loop
    @each_method
    def test_too_many_ranks(self, loop: str, method: str) -> None:
        """A limit of files that cannot hold the ranks is an error up front; with the one it names they all work."""
        program = f"""{PRELUDE}
async def main():
    before = await warm_up({method!r})
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (40, hard))
    args = {{rank: (rank,) for rank in range(8)}}
    try:
        await start_processes("job", worlds.double, args, start_method={method!r}, log_dir=os.devnull, tee=Std.ALL)
    except DescriptorLimitError as error:
        assert error.limit == 40 and error.needed > 40 and "8 ranks" in str(error), error
        needed = error.needed
    else:
        raise AssertionError("it started")
    before.compare_until_clean()
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    async with start_processes("job", worlds.double, args, start_method={method!r}, log_dir=os.devnull,
                               tee=Std.ALL) as context:
        result = await context.wait()
    assert result.return_values == {{rank: 2 * rank for rank in args}}, result
    await before.compare_until_clean_async()
run(main)
"""
        assert run_driver(program, loop) == ""


class TestForkWarning:
    """Python's warning of a fork in a program with threads."""

    @pytest.mark.one_of("options")
    @each_loop
    @pytest.mark.parametrize("options", ["", "tee=Std.ALL", "redirects=Std.ALL", "tee=Std.ALL, **filters"])
    def test_our_own_threads_cause_none(self, loop: str, options: str, tmp_path: Path) -> None:
        """A program without threads is not warned, with many teed ranks, and in group after group, either."""
        program = f"""{PRELUDE}
filters = {{"duplicate_stdout_filters": ["x"], "duplicate_stderr_filters": ["x"]}}
async def main():
    args = {{rank: (f"{{rank}}\\n" * 100,) for rank in range(8)}}
    with contextlib.redirect_stdout(None):
        for _ in range(2):
            async with start_processes("job", worlds.print_both, args, start_method="fork", log_dir=sys.argv[2],
                                       local_ranks_filter=() if "tee" in {options!r} else None,
                                       {options}) as context:
                result = await context.wait()
            result.raise_for_failures()
if not {options!r}:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
run(main)
"""
        run_driver(program, loop, tmp_path)

    @has_fork_warning
    @each_loop
    def test_threads_of_the_program_cause_it(self, loop: str) -> None:
        """A program that has a thread is warned as by any fork, and the ranks run."""
        program = f"""{PRELUDE}
async def main():
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with start_processes("job", worlds.double, {{0: (1,), 1: (2,)}}, start_method="fork") as context:
            result = await context.wait()
    end.set()
    thread.join()
    assert result.return_values == {{0: 2, 1: 4}}, result
    assert {{each.category for each in caught}} == {{DeprecationWarning}} and "fork" in str(caught[0].message), caught
run(main)
"""
        assert run_driver(program, loop) == ""


class TestLargeArguments:
    """Arguments that no pipe holds."""

    @pickling_methods
    async def test_they_arrive_while_the_loop_goes_on(self, method: str) -> None:
        """50 MB reach each of two ranks, and the loop turns all the time."""
        data = b"x" * LARGE
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.002)
                turns += 1

        counting = asyncio.create_task(count())
        result = await run_functions(method, worlds.size_of, (data,), (data,))
        counting.cancel()

        assert result.return_values == {0: LARGE, 1: LARGE}
        assert turns >= 10

    @pickling_methods
    async def test_a_rank_that_dies_before_it_has_read_them(self, method: str) -> None:
        """Killed in the middle of reading, a rank is a failure like any other; nobody waits for its reading."""
        data = b"x" * LARGE
        async with start_processes("job", worlds.size_of, {0: (data,)}, start_method=method) as context:
            os.kill(context.pids()[0], signal.SIGKILL)
            result = await context.wait(timeout=20)

        assert result is not None
        assert (result.exits[0].signal, result.exits[0].cause) == ("SIGKILL", ExitCause.KILLED)
        assert list(result.failures) == [0]

    @pickling_methods
    async def test_a_close_before_they_are_read(self, method: str) -> None:
        """Closed while the arguments are on their way, the rank ends at once."""
        data = b"x" * LARGE
        context = await start_processes("job", worlds.size_of, {0: (data,), 1: (data,)}, start_method=method)
        await asyncio.wait_for(context.close(timeout=60), 20)

        assert not any(map(is_alive, context.pids().values()))

    @pickling_methods
    async def test_a_rank_that_ends_while_it_unpickles_them(self, method: str) -> None:
        """An argument that ends the process is a failure with that code, and the function is not called."""
        result = await run_functions(method, worlds.never, (worlds.Deadly(), b"x" * LARGE))

        assert result.failures[0].exitcode == 7
