"""From a rank's write to the console.

A rank writes a line with the time every few milliseconds, and a reader at the other end of the console, which is a
pipe, looks at the clock when it gets it. The floor is ``tee FILE | sed -u``.
"""

import asyncio
import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final, TypeAlias

from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH, Case, Chart, Figure, at_most

TITLE = "From a rank's write to the console, of ranks that write a line every 7 ms"

FIGURES = (
    Figure(key="p50", name="median", unit="ms", goal=at_most(0.5, "1 rank")),
    Figure(key="p99", name="p99", unit="ms", goal=at_most(2.0, "1 rank")),
)

CHARTS = (
    Chart(name="latency", title="From a rank's write to the console, median", figure="p50"),
    Chart(name="latency-p99", title="From a rank's write to the console, p99", figure="p99"),
)

Words: TypeAlias = dict[int, tuple[str, ...]]
"""The arguments of each rank, which is a Python."""

SECONDS_TO_START: Final = 0.4
"""What the first rank needs at most until it is there."""

PERIOD: Final = 0.0073
"""Seconds between two lines of a rank: no divisor of torch's 0.1 s."""

RANK: Final = """
import os, sys, time
lines, begin, period = int(sys.argv[1]), float(sys.argv[2]), float(sys.argv[3])
for count in range(lines):
    time.sleep(max(0.0, begin + count * period - time.monotonic()))
    os.write(1, b"%d\\n" % time.monotonic_ns())
"""
READER: Final = """
import json, os, sys, time
late, rest = [], b""
while data := os.read(0, 1 << 16):
    now = time.monotonic_ns()
    *lines, rest = (rest + data).split(b"\\n")
    late += [(now - int(line.rpartition(b":")[2])) / 1e6 for line in lines]
print(json.dumps(late))
"""


def cases(*, quick: bool) -> list[Case]:
    """Take one rank, and as many as keep a supervisor busy."""
    return [
        Case(
            subject=subject,
            label=f"{ranks} ranks" if ranks > 1 else "1 rank",
            parameters={"ranks": ranks, "lines": 50 if quick else 200},
        )
        for ranks in (1, 16)[: 1 if quick else None]
        for subject in (AIOELASTIC, ASYNCIO, TORCH, FLOOR)
    ]


def words_of(ranks: int, lines: int) -> Words:
    """Let ranks begin when all are there, each a bit later than the one before."""
    begin = time.monotonic() + SECONDS_TO_START + 0.03 * ranks
    times = {rank: begin + PERIOD * rank / ranks for rank in range(ranks)}
    return {rank: ("-I", "-S", "-c", RANK, *map(str, (lines, begin, PERIOD))) for rank, begin in times.items()}


async def with_aioelastic(words: Words, folder: Path) -> None:
    """Let the library do it."""
    from aioelastic import Std, start_processes  # noqa: PLC0415 - others are measured without it

    async with start_processes("rank", sys.executable, words, log_dir=folder, tee=Std.OUT) as context:
        result = await context.wait()
        assert result is not None
        assert not result.is_failed()


async def with_readline(words: Words, folder: Path) -> None:
    """Do the same line by line, as one would by hand."""

    async def run(rank: int) -> None:
        process = await asyncio.create_subprocess_exec(sys.executable, *words[rank], stdout=asyncio.subprocess.PIPE)
        assert process.stdout is not None
        prefix = f"[rank{rank}]:".encode()
        with (folder / f"{rank}.log").open("wb", buffering=0) as file:
            while line := await process.stdout.readline():
                file.write(line)
                os.write(1, prefix + line)
        await process.wait()

    await asyncio.gather(*map(run, words))


def with_torch(words: Words, folder: Path) -> None:
    """Let torch do it: the ranks write their files, and threads read these."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes  # noqa: PLC0415

    # As on a terminal: else its lines would wait until some kilobytes are there.
    assert isinstance(sys.stdout, io.TextIOWrapper)
    sys.stdout.reconfigure(line_buffering=True)
    specs = DefaultLogsSpecs(log_dir=str(folder), tee=Std.OUT)
    context = start_processes("rank", sys.executable, dict(words), {rank: {} for rank in words}, specs)
    result = context.wait(period=0.1)
    assert result is not None
    assert not result.is_failed()


def with_coreutils(words: Words, folder: Path) -> None:
    """Pipe each stream through tee and sed, which is told to write each line at once."""
    script = '"$@" | tee "$0.log" | sed -u "s/^/[rank]:/"'
    started = [
        subprocess.Popen(["sh", "-c", script, folder / str(rank), sys.executable, *words[rank]]) for rank in words
    ]
    for process in started:
        assert process.wait() == 0


WITH_A_LOOP: Final[dict[str, Callable[[Words, Path], Awaitable[None]]]] = {
    AIOELASTIC: with_aioelastic,
    ASYNCIO: with_readline,
}
WITHOUT: Final[dict[str, Callable[[Words, Path], None]]] = {TORCH: with_torch, FLOOR: with_coreutils}


async def _run(subject: str, words: Words, folder: Path) -> None:
    await WITH_A_LOOP[subject](words, folder)


def measure(case: Case, folder: Path) -> dict[str, float]:
    """Run one subject with its console on a pipe that another process reads."""
    ranks, lines = case.parameters["ranks"], case.parameters["lines"]
    if case.subject == TORCH:
        import torch.distributed.elastic.multiprocessing  # noqa: F401, PLC0415 - before the ranks' clock starts
    elif case.subject == AIOELASTIC:
        import aioelastic  # noqa: F401, PLC0415 - see above
    reading, writing = os.pipe()
    with subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", READER], stdin=reading, stdout=subprocess.PIPE, text=True
    ) as reader:
        os.close(reading)
        nowhere = os.dup(1)
        os.dup2(writing, 1)
        os.close(writing)
        words = words_of(ranks, lines)
        if case.subject in WITHOUT:
            WITHOUT[case.subject](words, folder)
        else:
            asyncio.run(_run(case.subject, words, folder))
        sys.stdout.flush()
        # The reader's end: nobody else has the pipe now.
        os.dup2(nowhere, 1)
        assert reader.stdout is not None
        late = sorted(json.loads(reader.stdout.read()))
    assert len(late) == ranks * lines
    return {"p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100]}
