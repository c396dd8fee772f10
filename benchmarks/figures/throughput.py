"""Throughput of teed and filtered output, and the event loop's delay meanwhile.

Ranks of ``cat`` on a file of lines, which write as fast as they can; each stream goes to the rank's file, with a prefix
to the console (/dev/null) and, filtered, to a shared file. The floor is ``cat | tee FILE | sed`` for each.
"""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH, Case, Chart, Figure, in_ranks
from measuring.teeing import Job, run_teed

TITLE = "Output teed to file and console, and filtered, of ranks that write as fast as they can"

START: Final = b"step %08d loss 0.123456 grad_norm 1.234567 lr 3.00e-04 throughput 12345 tokens/s and more text..."
WORD: Final = "step 00000"
"""Few lines have it, as with a filter in earnest."""


def _speed_goal(case: Case, medians: Mapping[str, float]) -> float | None:
    """Four ranks: ten times torch. One: a third of coreutils' way, and 400 MB/s."""
    if case.label == "4 ranks" and TORCH in medians:
        return 10 * medians[TORCH]
    if case.label == "1 rank" and FLOOR in medians:
        return max(400.0, medians[FLOOR] / 3)
    return None


def _delay_goal(case: Case, _: Mapping[str, float]) -> float | None:
    return {"1 rank": 2.0, "4 ranks": 4.0}.get(case.label)


FIGURES = (
    Figure(key="speed", name="throughput", unit="MB/s", more_is_better=True, goal=_speed_goal),
    Figure(key="p50", name="loop delay, median", unit="ms"),
    Figure(key="p99", name="loop delay, p99", unit="ms", goal=_delay_goal),
    Figure(key="max", name="loop delay, worst", unit="ms"),
)

_BY_RANKS: Final = ("1 rank", "4 ranks", "16 ranks", "64 ranks")
_BY_LINES: Final = ("4 ranks, lines of 10 bytes", "4 ranks", "4 ranks, lines of 10000 bytes")

CHARTS = (
    Chart(name="throughput", title="Throughput, 1 and 4 ranks", figure="speed", only=_BY_RANKS[:2], scale="linear"),
    Chart(name="throughput-ranks", title="Throughput by ranks", figure="speed", over="ranks", only=_BY_RANKS),
    Chart(
        name="throughput-lines",
        title="Throughput of 4 ranks by the length of lines",
        figure="speed",
        over="line",
        axis="bytes of a line",
        only=_BY_LINES,
    ),
    Chart(name="throughput-delay", title="Loop delay (p99) meanwhile", figure="p99", over="ranks", only=_BY_RANKS),
)


def cases(*, quick: bool) -> list[Case]:
    """Vary the number of ranks, then the length of lines."""
    found = []
    for ranks, line in ((1, 100), (4, 100), (4, 10), (4, 10_000), (16, 100), (64, 100))[: 2 if quick else None]:
        label = in_ranks(ranks) + (f", lines of {line} bytes" if line != 100 else "")
        for subject in (AIOELASTIC, ASYNCIO, TORCH, FLOOR):
            each = _megabytes(subject, ranks, line) * (0.02 if quick else 1) / ranks
            parameters = {"ranks": ranks, "line": line, "megabytes": each}
            rounds = 2 if subject == TORCH and (line == 10 or ranks == 64) else None
            found.append(Case(subject=subject, label=label, parameters=parameters, rounds=rounds))
    return found


def _megabytes(subject: str, ranks: int, line: int) -> float:
    """Give what takes a subject half a second or more: a percentile of delays wants some hundreds of them.

    Torch takes longer anyway, and starts by a pause of 0.1 s.
    """
    if subject in {AIOELASTIC, FLOOR}:
        return 200 if line == 10 else 400
    if line == 10:
        return 10
    return 60 if subject == TORCH or ranks <= 4 else 40


def input_file(shared: Path, line: int, megabytes: float) -> Path:
    """Give a file of numbered lines of so many bytes, which is written for the first that asks."""
    path = shared / f"{megabytes}_megabytes_of_{line}"
    if not path.exists():
        with path.open("wb") as file:
            for number in range(int(megabytes * 1e6) // line):
                file.write((START % number).ljust(line - 1, b".")[: line - 1] + b"\n")
    return path


def measure(case: Case, folder: Path) -> dict[str, float]:
    """Run one subject once, after a small one for warming up, and watch the loop if there is one."""
    ranks, line, megabytes = (case.parameters[key] for key in ("ranks", "line", "megabytes"))
    _run(case.subject, ranks, input_file(folder.parent, line, 0.01), folder / "warm")
    source = input_file(folder.parent, line, megabytes)
    begin = time.perf_counter()
    late = _run(case.subject, ranks, source, folder / "hot")
    seconds = time.perf_counter() - begin
    size = ranks * source.stat().st_size
    written = sum(path.stat().st_size for path in (folder / "hot").rglob("*.log") if "filtered" not in path.name)
    assert written == size, "this was no honest measurement"
    return {"speed": size / 1e6 / seconds, **late}


def _run(subject: str, ranks: int, source: Path, folder: Path) -> dict[str, float]:
    folder.mkdir()
    args = {rank: (str(source),) for rank in range(ranks)}
    return run_teed(subject, Job(program="cat", args=args, folder=folder, word=WORD))
