"""What functions are given and what they return, for all start methods."""

import asyncio
import functools
import itertools
import os
import re
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioelastic import ExitCause, MultiprocessContext, start_processes
from tests.helpers import function_endings, functions
from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.function_groups import FORK_WARNING, METHODS, run_functions
from tests.helpers.waiting import is_alive, until

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.one_method, pytest.mark.half]

BIG = 80 * 1024 * 1024
"""Bytes of a value that takes a while to be sent."""

VALUES = [
    None,
    True,
    -(10**50),
    "text \udc80 \0 😀",
    b"\0\xff" * 1000,
    {"nested": [({1, 2}, frozenset("ab")), (None, ..., NotImplemented)], 3: {"deep": {"er": [1.5, float("inf")]}}},
    Path("/tmp"),
    [list(range(1000)) for _ in range(1000)],
    ValueError,
    len,
]

PEAK = """
from tests.helpers import functions

async def main():
    size, function = 160 * 2**20, getattr(functions, sys.argv[3])
    async with start_processes("job", function, {0: (size,)}, start_method=sys.argv[2]) as context:
        result = await context.wait()
    assert len(result.return_values[0]) == size
    # Not getrusage's: its peak goes on from that of the test's own process.
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    print(int(status["VmHWM"].removesuffix("kB")) * 1024 - size)

run(main)
"""
"""Says how much memory a supervisor had at most, beyond a value's own."""

NO_MEMORY = """
from tests.helpers import functions

async def main():
    go = Path(sys.argv[2])
    async with start_processes("job", functions.give_bytes_on, {0: (go, 2**28)}, log_dir=os.devnull) as context:
        used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + 100 * 2**20, resource.RLIM_INFINITY))
        go.touch()
        print((await context.wait()).failures[0].message)

run(main)
"""
"""Gets a value that is larger than the memory it may have."""


def received(context: Any, rank: int) -> int:
    """Give how much of a rank's value has come."""
    count: int = context._ranks[rank]._receiver._received
    return count


@pytest.mark.parametrize("method", METHODS)
async def test_values_come_back_by_rank(method: str) -> None:
    """Each rank's value is under its number, whatever its type, and nothing failed."""
    pairs = [VALUES[number : number + 2] for number in range(0, len(VALUES), 2)]
    result = await run_functions(method, functions.give, *((pair,) for pair in pairs))

    assert result.return_values == dict(enumerate(pairs))
    assert not result.is_failed()
    assert {each.exitcode for each in result.exits.values()} == {0}


@pytest.mark.parametrize("method", METHODS)
async def test_values_may_be_classes_and_functions(method: str) -> None:
    """What has a name in a module is the same object here."""
    values: tuple[object, ...] = (functions.Counter, functions.give, functions.Counter.name_of, Path.cwd)
    result = await run_functions(method, functions.give, *((value,) for value in values))
    assert list(result.return_values.values()) == list(values)


@pytest.mark.parametrize("method", METHODS)
async def test_what_is_in_a_value_twice_is_one_object(method: str) -> None:
    """A list that contains itself comes back as one."""
    result = await run_functions(method, functions.give_made, (functions.recursive,))
    value = result.return_values[0]
    assert value[0] is value


@pytest.mark.parametrize("method", METHODS)
async def test_a_function_without_return_gives_none(method: str) -> None:
    """``None`` is a value: it is there for every rank."""
    result = await run_functions(method, time.sleep, (0,), (0,))
    assert result.return_values == {0: None, 1: None}


@pytest.mark.parametrize("method", METHODS)
async def test_a_group_of_no_ranks_has_no_values(method: str) -> None:
    """The function is never called."""
    async with start_processes("job", function_endings.fail, {}, start_method=method) as context:
        result = await context.wait()

    assert result is not None
    assert (result.return_values, result.is_failed()) == ({}, False)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("args", "seen"),
    [
        ("hello", ("hello",)),
        (b"hello", (b"hello",)),
        (Path("a"), (Path("a"),)),
        ([1, [2]], (1, [2])),
        (([1, 2],), ([1, 2],)),
        ((), ()),
    ],
)
async def test_arguments_are_passed_as_they_are(method: str, args: Any, seen: tuple[object, ...]) -> None:
    """A bare ``str``, ``bytes`` or path is one argument, a list or a tuple a row of them; nothing is made text."""
    result = await run_functions(method, functions.give_all, args)
    assert result.return_values == {0: seen}


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("function", "value"),
    [
        (functions.give_async, (3, True)),
        (functools.partial(functions.give_all, 1, 2), (1, 2, 3)),
        (functools.partial(functions.give_async), (3, True)),
        (functions.Counter(4).add, 7),
        (functions.Counter(4).add_async, 7),
        (functions.Counter.name_of, "Counter 3"),
        (functions.Counter(4), 7),
        (functions.Counter, None),
        (str, "3"),
    ],
    ids=["async", "partial", "async partial", "method", "async method", "class method", "object", "class", "built-in"],
)
async def test_anything_that_can_be_called_is_an_entrypoint(
    method: str, function: Callable[..., Any], value: object
) -> None:
    """Coroutines are run to their end, methods and objects keep their state, classes give their instances."""
    result = await run_functions(method, function, (3,))

    if function is functions.Counter:
        assert result.return_values[0].start == 3
    else:
        assert result.return_values == {0: value}


async def test_a_function_gives_a_multiprocess_context() -> None:
    """What ``start_processes`` gives for a function knows its start method, which is spawn when not given."""
    async with start_processes("job", functions.give, {0: (1,)}) as context:
        assert isinstance(context, MultiprocessContext)
        assert context.start_method == "spawn"
        assert (await context.wait()) is not None


@pytest.mark.parametrize("method", METHODS)
async def test_ranks_that_succeeded_keep_their_values(tmp_path: Path, method: str) -> None:
    """When another rank fails later, the values of those before are in the result; the failed one has none."""
    go = tmp_path / "go"
    args = {0: (go, "first"), 1: (go, None), 2: (go, [3])}
    async with start_processes("job", functions.give_or_fail, args, start_method=method, log_dir=tmp_path) as context:
        await until(lambda: "1 of 3 ranks running" in repr(context))
        go.touch()
        result = await context.wait(timeout=30)

    assert result is not None
    assert result.return_values == {0: "first", 2: [3]}
    assert {rank: each.exitcode for rank, each in result.failures.items()} == {1: 3}


@pytest.mark.parametrize("method", METHODS)
async def test_a_rank_that_is_stopped_can_still_return(tmp_path: Path, method: str) -> None:
    """A rank that handles SIGTERM and returns has its value in the result, and is no failure."""
    ready = tmp_path / "ready"
    async with start_processes("job", functions.save_on_sigterm, {0: (ready,)}, start_method=method) as context:
        await until(ready.exists)
        await context.close()
        result = await context.wait()

    assert result is not None
    assert result.return_values == {0: "saved"}
    assert (result.exits[0].exitcode, result.failures) == (0, {})


@pytest.mark.parametrize("method", METHODS)
async def test_a_rank_that_is_stopped_and_dies_has_no_value(tmp_path: Path, method: str) -> None:
    """A rank that we ended before it returned, at whatever point of its start, is neither a value nor a failure."""
    for _ in range(20):
        async with start_processes("job", functions.give_on, {0: (tmp_path / "go", 1)}, start_method=method) as context:
            await context.close(timeout=5)
            result = await context.wait()

        assert result is not None
        assert (result.return_values, result.failures) == ({}, {})
        # Killed right away as long as nothing of the user's runs in it.
        assert result.exits[0].signal in {"SIGTERM", "SIGKILL"}
        assert result.exits[0].cause is ExitCause.STOPPED


@pytest.mark.parametrize("method", METHODS)
async def test_a_rank_killed_while_it_sends_a_big_value_fails_alone(tmp_path: Path, method: str) -> None:
    """Its half of a value is no value and hangs nobody; the other rank's is there."""
    args = {0: (BIG,), 1: (10,)}
    async with start_processes("job", functions.give_bytes, args, start_method=method, log_dir=tmp_path) as context:
        await until(lambda: received(context, 0) > 10**6 and "1 of 2 ranks running" in repr(context))
        os.kill(context.pids()[0], signal.SIGKILL)
        result = await context.wait(timeout=20)

    assert result is not None
    assert result.return_values == {1: b"x" * 10}
    assert {rank: each.signal_name() for rank, each in result.failures.items()} == {0: "SIGKILL"}
    assert result.failures[0].message == f"Signal 9 (SIGKILL) received by PID {result.exits[0].pid}"


@pytest.mark.parametrize("method", METHODS)
async def test_a_rank_stuck_in_sending_holds_up_no_other(method: str) -> None:
    """Each rank has a pipe of its own: others end while one has stopped in the middle of its value."""
    args = {rank: (size,) for rank, size in enumerate((BIG, 1, 10**6))}
    async with start_processes("job", functions.give_bytes, args, start_method=method) as context:
        await until(lambda: received(context, 0) > 10**6)
        os.kill(context.pids()[0], signal.SIGSTOP)
        await until(lambda: "1 of 3 ranks running" in repr(context))
        assert received(context, 0) < BIG
        os.kill(context.pids()[0], signal.SIGCONT)
        result = await context.wait(timeout=30)

    assert result is not None
    assert {rank: len(value) for rank, value in result.return_values.items()} == {0: BIG, 1: 1, 2: 10**6}


async def test_a_big_value_leaves_the_loop_to_others() -> None:
    """While a value of 80 MB comes and is unpickled, no turn of the loop takes long."""
    turns: list[float] = []

    async def count_turns() -> None:
        while True:
            turns.append(time.monotonic())
            await asyncio.sleep(0.001)

    async with start_processes("job", functions.give_bytes, {0: (BIG,)}) as context, asyncio.TaskGroup() as tasks:
        counting = tasks.create_task(count_turns())
        assert await context.wait() is not None
        counting.cancel()

    assert max(after - before for before, after in itertools.pairwise(turns)) < 1


@pytest.mark.parametrize("method", METHODS)
async def test_a_grandchild_that_holds_the_pipe_delays_nothing(method: str) -> None:
    """The value counts once its rank has exited, and what the rank left behind is ended with the group."""
    began = time.monotonic()
    async with start_processes("job", functions.leave_grandchild, {0: ()}, start_method=method) as context:
        result = await context.wait(timeout=30)
        assert result is not None
        assert time.monotonic() - began < 20
        assert not is_alive(result.return_values[0])


@pytest.mark.parametrize("method", METHODS)
async def test_arrays_travel_both_ways(method: str) -> None:
    """An array as argument and value keeps its type, shape and content."""
    array = np.arange(10**5, dtype=np.float32).reshape(100, -1)
    result = await run_functions(method, functions.double, (array,), (array[:, ::2],))

    for rank, given in enumerate((array, array[:, ::2])):
        value = result.return_values[rank]
        assert (value.dtype, value.shape) == (given.dtype, given.shape)
        assert np.array_equal(value, given * 2)


@pytest.mark.parametrize("method", METHODS)
async def test_arguments_may_be_larger_than_a_pipe(method: str) -> None:
    """Nothing waits for ever for room: 20 MB go to each rank, and come back."""
    big = bytes(range(256)) * 80_000
    result = await run_functions(method, functions.give, *[(big,)] * 3)
    assert [result.return_values[rank] == big for rank in range(3)] == [True] * 3


@pytest.mark.parametrize("method", METHODS)
async def test_big_arguments_that_nobody_reads_hold_up_nothing(tmp_path: Path, method: str) -> None:
    """A rank killed before it has read what it is given fails, and the group ends."""
    args = {0: (tmp_path / "never", b"x" * BIG)}
    async with start_processes("job", functions.give_on, args, start_method=method) as context:
        os.kill(context.pids()[0], signal.SIGKILL)
        result = await context.wait(timeout=20)

    assert result is not None
    assert result.failures[0].signal_name() == "SIGKILL"


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize(("method", "function"), [("spawn", "give_bytes"), ("forkserver", "give_array")])
def test_a_big_value_takes_its_own_memory_and_little_more(loop: str, method: str, function: str) -> None:
    """A supervisor that gets 160 MB of bytes, or as large an array, has at no time 100 MB beyond those."""
    beyond = int(run_driver(PEAK, loop, method, function))
    assert beyond < 100 * 2**20


@pytest.mark.parametrize("loop", LOOPS)
def test_a_value_for_which_there_is_no_memory_fails_its_rank(tmp_path: Path, loop: str) -> None:
    """The failure names the size, and the supervisor lives."""
    said = run_driver(NO_MEMORY, loop, tmp_path / "go")
    assert re.match(r"There is no memory for its value of 2684354\d\d bytes", said)
