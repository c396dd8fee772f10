"""What a rank itself waits for its output: the time of its calls of ``write``.

Ranks write lines, then blocks of lines, as fast as they can, and then a line every millisecond, as a program does that
has other work. The floor is a rank that writes into a file, and nobody reads it; torch's ranks do so too, next to its
readers.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Final

from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH, Case, Chart, Figure, in_ranks
from measuring.teeing import Job, import_subject, run_teed

TITLE = "A rank's own time for a call of write, teed, next to writing into a file"

FIGURES = (
    Figure(key="paced", name="a line of 100 bytes every ms, median", unit="µs"),
    Figure(key="paced99", name="a line of 100 bytes every ms, p99", unit="µs"),
    Figure(key="line", name="lines of 100 bytes without a pause, mean", unit="µs"),
    Figure(key="block", name="blocks of 64 kB without a pause, mean", unit="µs"),
)

CHARTS = (
    Chart(name="writes", title="A rank's call of write: a line every ms, median", figure="paced", scale="linear"),
)

RANK: Final = """
import json, os, sys, time
path, lines, blocks, paced = sys.argv[1], *map(int, sys.argv[2:])
line = b"x" * 99 + b"\\n"

def mean(data, count):
    begin = time.monotonic()
    for _ in range(count):
        os.write(1, data)
    return (time.monotonic() - begin) / count * 1e6

times = {"line": mean(line, lines), "block": mean(line * 655, blocks)}
time.sleep(0.2)
calls = []
for _ in range(paced):
    time.sleep(0.001)
    begin = time.monotonic_ns()
    os.write(1, line)
    calls.append((time.monotonic_ns() - begin) / 1e3)
calls.sort()
times |= {"paced": calls[len(calls) // 2], "paced99": calls[len(calls) * 99 // 100]}
with open(path, "w") as file:
    json.dump(times, file)
"""


def cases(*, quick: bool) -> list[Case]:
    """Take one rank, and as many as there is work for all cores."""
    counts = (500, 20, 100) if quick else (10_000, 150, 400)
    return [
        Case(
            subject=subject,
            label=in_ranks(ranks),
            parameters={"ranks": ranks, "counts": counts},
        )
        for ranks in (1, 4)[: 1 if quick else None]
        for subject in (AIOELASTIC, ASYNCIO, TORCH, FLOOR)
    ]


def measure(case: Case, folder: Path) -> dict[str, float]:
    """Run the ranks once, and give the means of what they tell."""
    results = [folder / f"times{rank}" for rank in range(case.parameters["ranks"])]
    args = {
        rank: ("-I", "-S", "-c", RANK, str(path), *map(str, case.parameters["counts"]))
        for rank, path in enumerate(results)
    }
    import_subject(case.subject)
    job = Job(program=sys.executable, args=args, folder=folder)
    if case.subject == FLOOR:
        _write_files(job)
    else:
        run_teed(case.subject, job)
    times = [json.loads(path.read_text()) for path in results]
    return {figure.key: statistics.mean(each[figure.key] for each in times) for figure in FIGURES}


def _write_files(job: Job) -> None:
    started = []
    for rank, args in job.args.items():
        with (job.folder / f"{rank}.log").open("wb") as file:
            started.append(subprocess.Popen([job.program, *args], stdout=file))
    for process in started:
        assert process.wait() == 0
