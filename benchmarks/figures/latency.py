"""From a rank's write to the console.

A rank writes a line with the time every few milliseconds, and a reader at the other end of the console, which is a
pipe, looks at the clock when it gets it. The floor is ``tee FILE | sed -u``.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH, Case, Chart, Figure, at_most, in_ranks
from measuring.teeing import Job, import_subject, run_teed

TITLE = "From a rank's write to the console, of ranks that write a line every 7 ms"

FIGURES = (
    Figure(key="p50", name="median", unit="ms", goal=at_most(0.5, "1 rank")),
    Figure(key="p99", name="p99", unit="ms", goal=at_most(2.0, "1 rank")),
)

CHARTS = (
    Chart(name="latency", title="From a rank's write to the console, median", figure="p50"),
    Chart(name="latency-p99", title="From a rank's write to the console, p99", figure="p99"),
)

SECONDS_TO_START: Final = 0.25
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
            label=in_ranks(ranks),
            parameters={"ranks": ranks, "lines": 200 if ranks == 1 and not quick else 60},
        )
        for ranks in (1, 16)[: 1 if quick else None]
        for subject in (AIOELASTIC, ASYNCIO, TORCH, FLOOR)
    ]


def ranks_arguments(ranks: int, lines: int) -> dict[int, tuple[str, ...]]:
    """Let ranks begin when all are there, each a bit later than the one before."""
    begin = time.monotonic() + SECONDS_TO_START + 0.02 * ranks
    times = {rank: begin + PERIOD * rank / ranks for rank in range(ranks)}
    return {rank: ("-I", "-S", "-c", RANK, *map(str, (lines, begin, PERIOD))) for rank, begin in times.items()}


def measure(case: Case, folder: Path) -> dict[str, float]:
    """Run one subject with its console on a pipe that another process reads."""
    ranks, lines = case.parameters["ranks"], case.parameters["lines"]
    import_subject(case.subject)  # before the ranks' clock starts
    reading, writing = os.pipe()
    command = [sys.executable, "-I", "-S", "-c", READER]
    with subprocess.Popen(command, stdin=reading, stdout=subprocess.PIPE, text=True) as reader:
        nowhere = os.dup(1)
        os.dup2(writing, 1)
        os.close(reading)
        os.close(writing)
        run_teed(
            case.subject,
            Job(program=sys.executable, args=ranks_arguments(ranks, lines), folder=folder, at_once=True),
        )
        # Now nobody has the console, so this is its reader's end.
        os.dup2(nowhere, 1)
        assert reader.stdout is not None
        late = sorted(json.loads(reader.stdout.read()))
    assert len(late) == ranks * lines
    return {"p50": late[len(late) // 2], "p99": late[len(late) * 99 // 100]}
