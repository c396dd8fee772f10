"""Throughput of teed and filtered output, and the event loop's delay meanwhile.

Ranks of ``cat`` on a file of lines, which write as fast as they can; each stream goes to the rank's file, with a prefix
to the console (/dev/null) and, filtered, to a shared file. The floor is ``cat | tee FILE | sed`` for each.
"""

import asyncio
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Final

from measuring.delays import watch_delays
from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH, Case, Chart, Figure

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
    """Vary the number of ranks, then the length of lines; who is slower has less to do."""
    found = []
    for ranks, line in ((1, 100), (4, 100), (4, 10), (4, 10_000), (16, 100), (64, 100))[: 2 if quick else None]:
        label = (f"{ranks} ranks" if ranks > 1 else "1 rank") + (f", lines of {line} bytes" if line != 100 else "")
        for subject, megabytes in ((AIOELASTIC, 200), (ASYNCIO, 60), (TORCH, 60), (FLOOR, 200)):
            each = megabytes * (0.02 if quick else 1) * (0.25 if line == 10 else 1) / ranks
            parameters = {"ranks": ranks, "line": line, "megabytes": each}
            found.append(Case(subject=subject, label=label, parameters=parameters))
    return found


def input_file(shared: Path, line: int, megabytes: float) -> Path:
    """Give a file of numbered lines of so many bytes, which is written for the first that asks."""
    path = shared / f"{megabytes}_megabytes_of_{line}"
    if not path.exists():
        with path.open("wb") as file:
            for number in range(int(megabytes * 1e6) // line):
                file.write((START % number).ljust(line - 1, b".")[: line - 1] + b"\n")
    return path


async def with_aioelastic(ranks: int, source: Path, folder: Path) -> None:
    """Let the library do it."""
    from aioelastic import Std, start_processes  # noqa: PLC0415 - others are measured without it

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


def with_torch(ranks: int, source: Path, folder: Path) -> None:
    """Let torch do it: the ranks write their files, and threads read these."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes  # noqa: PLC0415

    context = start_processes(
        "cat",
        "cat",
        args=dict.fromkeys(range(ranks), (str(source),)),
        envs={rank: {} for rank in range(ranks)},
        logs_specs=DefaultLogsSpecs(log_dir=str(folder), tee=Std.OUT),
        duplicate_stdout_filters=[WORD],
    )
    result = context.wait(period=0.1)
    assert result is not None
    assert not result.is_failed()


def with_coreutils(ranks: int, source: Path, folder: Path) -> None:
    """Pipe each stream through tee and sed, without a filtered file."""
    script = 'cat "$0" | tee "$1" | sed "s/^/[cat$2]:/"'
    started = [
        subprocess.Popen(["sh", "-c", script, source, folder / f"{rank}.log", str(rank)]) for rank in range(ranks)
    ]
    for process in started:
        assert process.wait() == 0


WITH_A_LOOP: Final[dict[str, Callable[[int, Path, Path], Awaitable[None]]]] = {
    AIOELASTIC: with_aioelastic,
    ASYNCIO: with_readline,
}
WITHOUT: Final[dict[str, Callable[[int, Path, Path], None]]] = {TORCH: with_torch, FLOOR: with_coreutils}


def measure(case: Case, folder: Path) -> dict[str, float]:
    """Run one subject once, after a small one for warming up, and watch the loop if there is one."""
    ranks, line, megabytes = (case.parameters[key] for key in ("ranks", "line", "megabytes"))
    source = input_file(folder.parent, line, megabytes)
    seconds = 0.0
    late: dict[str, float] = {}
    for name, path in (("warm", input_file(folder.parent, line, 0.01)), ("hot", source)):
        place = folder / name
        place.mkdir()
        begin = time.perf_counter()
        if case.subject in WITHOUT:
            WITHOUT[case.subject](ranks, path, place)
        else:
            late = asyncio.run(watch_delays(WITH_A_LOOP[case.subject](ranks, path, place)))
        seconds = time.perf_counter() - begin
    return {"speed": ranks * source.stat().st_size / 1e6 / seconds, **late}
