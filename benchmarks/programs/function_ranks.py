"""Ranks that are functions: started and waited for in several ways. Prints numbers as JSON.

    python function_ranks.py SUBJECT METHOD RANKS SAMPLES      the milliseconds from the start to small values
    python function_ranks.py SUBJECT large MEGABYTES           what one large value takes

A program of its own: a process that is spawned imports the main program again before it calls a function of it,
whoever starts it. So this one imports next to nothing by itself.
"""

# ruff: noqa: PLC0415 - see above

import sys
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any, TypeAlias

    Function: TypeAlias = Callable[[int], Any]
    Values: TypeAlias = tuple[float, list[Any]]


def square(number: int) -> int:
    """Do next to nothing."""
    return number * number


def large(megabytes: int) -> bytes:
    """Return a lot."""
    return b"x" * (megabytes << 20)


async def run_aioelastic(method: str, function: "Function", numbers: list[int]) -> "Values":
    """Start a rank for each number, and wait for their values; tell when they are there."""
    from aioelastic import start_processes

    calls = {rank: (number,) for rank, number in enumerate(numbers)}
    async with start_processes("bench", function, calls, start_method=method) as context:
        result = await context.wait()
        return time.perf_counter(), [result.return_values[rank] for rank in calls]


def with_aioelastic(method: str, function: "Function", numbers: list[int]) -> "Values":
    """Do so from a program without a loop."""
    import asyncio

    found: list[Values] = []

    async def run() -> None:
        # Not as the result of asyncio.run: on Python 3.11 that makes a text of it, which is a copy of a large value.
        found.append(await run_aioelastic(method, function, numbers))

    asyncio.run(run())
    return found[0]


def with_pool(method: str, function: "Function", numbers: list[int]) -> "Values":
    """Have a pool of as many processes call the function; tell when the values are there."""
    import multiprocessing

    with multiprocessing.get_context(method).Pool(len(numbers)) as pool:
        values = pool.map(function, numbers, chunksize=1)
        return time.perf_counter(), values


def with_executor(method: str, function: "Function", numbers: list[int]) -> "Values":
    """Have an executor of as many processes call the function; tell when the values are there."""
    import multiprocessing
    from concurrent.futures import ProcessPoolExecutor

    with ProcessPoolExecutor(len(numbers), multiprocessing.get_context(method)) as executor:
        values = list(executor.map(function, numbers))
        return time.perf_counter(), values


def with_torch(method: str, function: "Function", numbers: list[int]) -> "Values":
    """Have torch start the ranks, and look for their values ten times a second."""
    from measuring.rivals import PERIOD, torch_starter

    with torch_starter() as start:
        calls = {rank: (number,) for rank, number in enumerate(numbers)}
        result = start(function, calls, start_method=method).wait(period=PERIOD)
        return time.perf_counter(), [result.return_values[rank] for rank in calls]


SUBJECTS: "dict[str, Callable[[str, Function, list[int]], Values]]" = {
    "aioelastic": with_aioelastic,
    "multiprocessing.Pool": with_pool,
    "ProcessPoolExecutor": with_executor,
    "torch": with_torch,
}


def time_squares(subject: str, method: str, ranks: int, samples: int) -> dict[str, float]:
    """Measure small values; the first time warms up: imports, fork servers."""
    import statistics

    numbers, taken = list(range(ranks)), []
    for _ in range(samples + 1):
        begin = time.perf_counter()
        there, values = SUBJECTS[subject](method, square, numbers)
        taken.append((there - begin) * 1e3)
        assert values == [square(number) for number in numbers]
    return {"seconds": statistics.median(taken[1:])}


def time_large(subject: str, megabytes: int) -> dict[str, float]:
    """Measure one large value."""
    import resource

    SUBJECTS[subject]("spawn", large, [1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begin = time.perf_counter()
    there, values = SUBJECTS[subject]("spawn", large, [megabytes])
    assert len(values[0]) == megabytes << 20
    beyond = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024 - megabytes
    figures = {"speed": megabytes / (there - begin), "memory": beyond}
    if subject == "aioelastic":
        del values
        figures["max"] = worst_delay(megabytes)
    return figures


def worst_delay(megabytes: int) -> float:
    """Give the milliseconds by which the loop was late at most, in another run, as watching takes time as well."""
    import asyncio

    from measuring.delays import watch_delays

    async def run() -> float:
        return (await watch_delays(run_aioelastic("spawn", large, [megabytes])))["max"]

    return asyncio.run(run())


def main() -> None:
    """Measure and print."""
    import json

    subject, what, *numbers = sys.argv[1:]
    if what == "large":
        print(json.dumps(time_large(subject, int(numbers[0]))))
    else:
        ranks, samples = map(int, numbers)
        print(json.dumps(time_squares(subject, what, ranks, samples)))


if __name__ == "__main__":
    main()
