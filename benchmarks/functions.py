"""Function ranks: how long from the start to the values, and how a large value travels.

    python benchmarks/functions.py [--ranks 4] [--rounds 7] [--megabytes 1000]

Measured in turns: n ranks that return their square, by each start method, next to ``multiprocessing.Pool`` and
``concurrent.futures.ProcessPoolExecutor`` of the same size doing the same. The fork servers of all are warm. Then one
rank that returns a large value: seconds, the supervisor's memory on top of the value, and its loop's worst delay.

A spawned process imports this module again before it calls a function of it, whoever starts it. So the module imports
next to nothing by itself.
"""

# ruff: noqa: PLC0415 - see above

import resource
import statistics
import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

METHODS = ("spawn", "forkserver", "fork")


def square(number: int) -> int:
    """Do next to nothing."""
    return number * number


def large(megabytes: int) -> bytes:
    """Return a lot."""
    return b"x" * (megabytes << 20)


async def with_aioelastic(method: str, ranks: int) -> tuple[float, dict[int, int]]:
    """Start the ranks, and wait for their values; tell when they are there."""
    from aioelastic import start_processes

    calls = {rank: (rank,) for rank in range(ranks)}
    async with start_processes("squares", square, calls, start_method=method) as context:
        result = await context.wait()
        assert result is not None
        return time.perf_counter(), result.return_values


async def with_pool(method: str, ranks: int) -> tuple[float, dict[int, int]]:
    """Have a pool call the function; tell when the values are there."""
    import multiprocessing

    with multiprocessing.get_context(method).Pool(ranks) as pool:
        values = dict(enumerate(pool.map(square, range(ranks), chunksize=1)))
        return time.perf_counter(), values


async def with_executor(method: str, ranks: int) -> tuple[float, dict[int, int]]:
    """Have an executor call the function; tell when the values are there."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(ranks, multiprocessing.get_context(method)) as executor:
        values = dict(enumerate(executor.map(square, range(ranks))))
        return time.perf_counter(), values


SUBJECTS: "dict[str, Callable[[str, int], Awaitable[tuple[float, dict[int, int]]]]]" = {
    "aioelastic": with_aioelastic,
    "Pool": with_pool,
    "ProcessPoolExecutor": with_executor,
}


async def squares(ranks: int, rounds: int) -> None:
    """Measure small values."""
    expected = {rank: rank * rank for rank in range(ranks)}
    for method in METHODS:
        seconds: dict[str, list[float]] = {subject: [] for subject in SUBJECTS}
        for turn in range(rounds + 1):
            for subject, run in SUBJECTS.items():
                begin = time.perf_counter()
                there, values = await run(method, ranks)
                assert values == expected
                if turn:  # the first one warms up: imports, fork servers
                    seconds[subject].append(there - begin)
        for subject, each in seconds.items():
            spread = f"{min(each) * 1e3:7.1f} to {max(each) * 1e3:7.1f}"
            print(f"{method:10} {subject:20} {statistics.median(each) * 1e3:7.1f} ms  ({spread})")


async def large_value(megabytes: int) -> None:
    """Measure one large value."""
    import asyncio
    import contextlib

    from aioelastic import start_processes

    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - before - 0.001)

    watching = asyncio.create_task(watch())
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    async with start_processes("large", large, {0: (megabytes,)}) as context:
        result = await context.wait()
    seconds = time.perf_counter() - begin
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    assert result is not None
    assert len(result.return_values[0]) == megabytes << 20
    extra = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 - megabytes
    print(
        f"a value of {megabytes} MB: {seconds:.2f} s ({megabytes / seconds:.0f} MB/s), "
        f"{extra:.0f} MB of memory beyond it, worst delay of the loop {worst * 1e3:.1f} ms"
    )


def main() -> None:
    """Measure and print."""
    import argparse
    import asyncio

    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--megabytes", type=int, default=1000)
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {options.ranks} ranks, medians of {options.rounds} rounds", flush=True)
    asyncio.run(squares(options.ranks, options.rounds))
    asyncio.run(large_value(options.megabytes))


if __name__ == "__main__":
    main()
