"""Throughput of teed and filtered output, and the event loop's delay meanwhile.

Four ranks (or as many as asked for) of ``cat`` on a file of 100-byte lines; each stream goes to the rank's file, with a
prefix to the console (/dev/null) and, filtered, to a shared file. Side by side, interleaved in one run: aioelastic, and
plain ``asyncio.create_subprocess_exec`` with ``readline()`` doing the same work.

    python benchmarks/throughput.py [--ranks 4] [--megabytes 50] [--rounds 3]

Each measurement runs in a process of its own, so that none warms up the other. The delay is how late a timer of 1 ms
fires; a table and a line of JSON come out.
"""

import argparse
import asyncio
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from aioelastic import Std, start_processes

LINE = b"step %08d loss 0.123456 grad_norm 1.234567 lr 3.00e-04 throughput 12345 tokens/s and more text...\n"
WORD = "step 00000"
"""Few lines have it, as with a filter in earnest."""


def write_input(path: Path, megabytes: int) -> None:
    """Write numbered lines of 100 bytes."""
    with path.open("wb") as file:
        file.writelines((LINE % number)[-100:].rjust(100, b".") for number in range(megabytes * 10_000))


async def with_aioelastic(ranks: int, source: Path, folder: Path) -> None:
    """Let the library do it."""
    async with start_processes(
        "cat",
        "cat",
        args=dict.fromkeys(range(ranks), (source,)),
        log_dir=folder,
        tee=Std.OUT,
        duplicate_stdout_filters=[WORD],
    ) as context:
        result = await context.wait()
        assert result is not None
        assert not result.is_failed()


async def with_readline(ranks: int, source: Path, folder: Path) -> None:
    """Do the same line by line, as one would by hand."""
    word = WORD.encode()
    with (folder / "filtered.log").open("wb") as filtered:

        async def run(rank: int) -> None:
            process = await asyncio.create_subprocess_exec("cat", str(source), stdout=asyncio.subprocess.PIPE)
            assert process.stdout is not None
            prefix = f"[cat{rank}]:".encode()
            with (folder / f"{rank}.log").open("wb") as file:
                while line := await process.stdout.readline():
                    file.write(line)
                    prefixed = prefix + line
                    sys.stdout.buffer.write(prefixed)
                    if word in prefixed:
                        filtered.write(prefixed)
            await process.wait()

        await asyncio.gather(*map(run, range(ranks)))
    sys.stdout.flush()


SUBJECTS: dict[str, Callable[[int, Path, Path], Awaitable[None]]] = {
    "aioelastic": with_aioelastic,
    "plain asyncio": with_readline,
}


async def measure(subject: str, ranks: int, source: Path, folder: Path) -> dict[str, float]:
    """Run one subject once and watch the loop."""
    loop = asyncio.get_running_loop()
    delays: list[float] = []

    def tick(due: float) -> None:
        now = loop.time()
        delays.append(now - due)
        timer[0] = loop.call_at(now + 0.001, tick, now + 0.001)

    size = source.stat().st_size  # noqa: ASYNC240 - before the clock starts
    timer = [loop.call_later(0.001, tick, loop.time() + 0.001)]
    begin = time.perf_counter()
    await SUBJECTS[subject](ranks, source, folder)
    seconds = time.perf_counter() - begin
    timer[0].cancel()
    delays.sort()
    return {
        "MB/s": ranks * size / 1e6 / seconds,
        "delay p50 ms": delays[len(delays) // 2] * 1e3,
        "delay p99 ms": delays[len(delays) * 99 // 100] * 1e3,
        "delay max ms": delays[-1] * 1e3,
    }


def run_child(subject: str, ranks: int, source: Path) -> dict[str, float]:
    """Measure in a process of its own, its console on /dev/null."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--child", subject, str(ranks), str(source), folder]
        done = subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, check=True, text=True)
    measured: dict[str, float] = json.loads(done.stderr.splitlines()[-1])
    return measured


def main() -> None:
    """Measure in turns and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--megabytes", type=int, default=50, help="size of each rank's output")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        subject, ranks, source, folder = options.child
        print(json.dumps(asyncio.run(measure(subject, int(ranks), Path(source), Path(folder)))), file=sys.stderr)
        return
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "input.txt"
        write_input(source, options.megabytes)
        rounds: dict[str, list[dict[str, float]]] = {subject: [] for subject in SUBJECTS}
        for number in range(options.rounds):
            for subject, measured in rounds.items():
                print(f"round {number + 1} of {options.rounds}: {subject}", file=sys.stderr)
                measured.append(run_child(subject, options.ranks, source))
    medians = {
        subject: {figure: statistics.median(each[figure] for each in measured) for figure in measured[0]}
        for subject, measured in rounds.items()
    }
    print(
        f"{options.ranks} ranks, {options.megabytes} MB each, Python {sys.version.split()[0]}, {os.cpu_count()} cores"
    )
    for subject, figures in medians.items():
        print(f"{subject:14}", *(f"{figure}: {value:8.2f}" for figure, value in figures.items()), sep="  ")
    ratio = medians["aioelastic"]["MB/s"] / medians["plain asyncio"]["MB/s"]
    print(f"aioelastic is {ratio:.1f} times as fast")
    print(json.dumps(medians))


if __name__ == "__main__":
    main()
