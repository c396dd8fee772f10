"""Starting ranks: how long it takes, and how late the event loop's timers are meanwhile.

    python benchmarks/start.py [--ranks 256] [--heap-megabytes 1024] [--rounds 3]

Measured in turns, on asyncio's loop and on uvloop, next to plain ``asyncio.create_subprocess_exec``: n ranks of
/bin/true from the start to the result; then the same from a process with a big touched heap, where a start that copies
page tables (fork) shows.
"""

import argparse
import asyncio
import contextlib
import json
import statistics
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable

from aioelastic import start_processes


async def with_aioelastic(ranks: int) -> None:
    """Let the library do it."""
    async with start_processes("true", "/bin/true", args=dict.fromkeys(range(ranks), ())) as context:
        await context.wait()


async def with_plain_asyncio(ranks: int) -> None:
    """Start one after the other, then wait for all."""
    command = ("/bin/true",)
    started = [
        await asyncio.create_subprocess_exec(*command, stdin=subprocess.DEVNULL, start_new_session=True)
        for _ in range(ranks)
    ]
    for process in started:
        await process.wait()


SUBJECTS: dict[str, Callable[[int], Awaitable[None]]] = {
    "aioelastic": with_aioelastic,
    "plain asyncio": with_plain_asyncio,
}


async def measure(subject: str, ranks: int) -> dict[str, float]:
    """Run one subject, the first time for warming up, and watch the loop."""
    await SUBJECTS[subject](4)
    worst = 0.0

    async def watch() -> None:
        nonlocal worst
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            worst = max(worst, time.perf_counter() - before - 0.001)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0.01)
    begin = time.perf_counter()
    await SUBJECTS[subject](ranks)
    seconds = time.perf_counter() - begin
    watching.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await watching
    return {"start to result ms": seconds * 1e3, "worst delay ms": worst * 1e3}


def run_child(loop: str, subject: str, ranks: int, heap: int) -> dict[str, float]:
    """Measure in a process of its own."""
    command = [sys.executable, __file__, "--child", loop, subject, str(ranks), str(heap)]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured


def be_child(loop: str, subject: str, ranks: int, heap: int) -> None:
    """Touch a heap, then measure on the asked loop."""
    memory = bytearray(heap << 20)
    memory[::4096] = b"x" * len(memory[::4096])
    if loop == "uvloop":
        import uvloop  # noqa: PLC0415 - only where it is asked for

        print(json.dumps(uvloop.run(measure(subject, ranks))))
    else:
        print(json.dumps(asyncio.run(measure(subject, ranks))))


def main() -> None:
    """Measure in turns and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--heap-megabytes", type=int, default=1024)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        loop, subject, ranks, heap = options.child
        be_child(loop, subject, int(ranks), int(heap))
        return
    cases = [
        (loop, subject, ranks, heap)
        for ranks, heap in ((options.ranks, 0), (32, options.heap_megabytes))
        for loop in ("asyncio", "uvloop")
        for subject in SUBJECTS
    ]
    rounds = [[run_child(*case) for case in cases] for _ in range(options.rounds)]
    print(f"Python {sys.version.split()[0]}, medians of {options.rounds} rounds")
    for (loop, subject, ranks, heap), measured in zip(cases, zip(*rounds, strict=True), strict=True):
        figures = {figure: statistics.median(each[figure] for each in measured) for figure in measured[0]}
        shown = "  ".join(f"{figure}: {value:8.1f}" for figure, value in figures.items())
        print(f"{ranks:4} ranks, {heap:4} MB heap, {loop:8} {subject:14}  {shown}")


if __name__ == "__main__":
    main()
