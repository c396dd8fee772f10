"""How everything grows with the number of ranks, from 1 to 1000.

Ranks of ``sleep`` are started, looked at and closed; then ranks of /bin/true run to their result. Memory is that of the
supervisor.
"""

import asyncio
import resource
import statistics
import time
from collections.abc import Callable, Collection
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol

from measuring.cpu_meter import CpuMeter
from measuring.plan import AIOELASTIC, ASYNCIO, TORCH, Case, Chart, Figure, at_most
from measuring.rivals import PERIOD, plain_close, plain_start, torch_starter

if TYPE_CHECKING:
    from aioelastic import PContext

TITLE = "Growth with the number of ranks"

MANY: Final = "1000 ranks"
LINEAR: Final = 1.2
"""A rank may take this much more in the largest group than in one of 64 for a growth that is called linear."""

FIGURES = (
    Figure(key="start", name="start of sleep", unit="ms"),
    Figure(key="close", name="close of sleep", unit="ms"),
    Figure(key="both", name="start and close of sleep", unit="ms", goal=at_most(4000, MANY)),
    Figure(key="result", name="start of /bin/true to the result", unit="ms"),
    Figure(key="memory", name="memory per rank", unit="kB", goal=at_most(60, MANY)),
    Figure(key="descriptors", name="descriptors per rank", unit=""),
    Figure(key="all", name="CPU while idle", unit="ms/s"),
    Figure(key="both_growth", name="start and close, a rank's time to one's of 64", unit="times", goal=at_most(LINEAR)),
    Figure(key="result_growth", name="to the result, a rank's time to one's of 64", unit="times", goal=at_most(LINEAR)),
)

CHARTS = (
    Chart(
        name="scale-result", title="Start of /bin/true to the result, ms", figure="result", over="ranks", axis="ranks"
    ),
    Chart(name="scale-close", title="Close of ranks of sleep, ms", figure="close", over="ranks", axis="ranks"),
    Chart(
        name="scale-memory", title="Memory of the supervisor per rank, kB", figure="memory", over="ranks", axis="ranks"
    ),
    Chart(name="scale-idle", title="CPU while ranks sleep, ms per second", figure="all", over="ranks", axis="ranks"),
)


def cases(*, quick: bool) -> list[Case]:
    """Grow."""
    return [
        Case(
            subject=subject,
            label=f"{ranks} ranks" if ranks > 1 else "1 rank",
            parameters={"ranks": ranks, "idle": 2 if subject == AIOELASTIC and not quick else 0},
            rounds=2 if subject == TORCH else 3,
        )
        for ranks in ((1, 8, 64) if quick else (1, 8, 64, 256, 1000))
        for subject in (AIOELASTIC, ASYNCIO, TORCH)
    ]


class Subject(Protocol):
    """What can be measured: one group at a time."""

    def start(self, ranks: int) -> Collection[int]:
        """Start ranks of sleep, and give their pids."""

    def idle(self, seconds: float) -> None:
        """Supervise them for a while."""

    def close(self) -> None:
        """End them."""

    def run(self, ranks: int) -> None:
        """Run ranks of /bin/true to their result."""


class WithAioelastic:
    """The library (`Subject`)."""

    def __init__(self, stack: ExitStack) -> None:
        self._runner = stack.enter_context(asyncio.Runner())
        self._context: PContext | None = None

    def start(self, ranks: int) -> Collection[int]:
        """Start ranks of sleep."""
        self._context = self._runner.run(self._started("sleep", dict.fromkeys(range(ranks), ("600",))))
        return self._context.pids().values()

    def idle(self, seconds: float) -> None:
        """Let the loop run."""
        self._runner.run(asyncio.sleep(seconds))

    def close(self) -> None:
        """End them."""
        assert self._context is not None
        self._runner.run(self._context.close())
        self._context = None

    def run(self, ranks: int) -> None:
        """Run ranks of /bin/true."""
        self._runner.run(self._to_the_result(ranks))

    async def _to_the_result(self, ranks: int) -> None:
        context = await self._started("/bin/true", dict.fromkeys(range(ranks), ()))
        await context.wait()
        await context.close()

    async def _started(self, command: str, args: dict[int, tuple[str, ...]]) -> "PContext":
        from aioelastic import start_processes  # noqa: PLC0415 - others are measured without it

        return await start_processes("scale", command, args)


class WithPlainAsyncio:
    """Processes by hand (`Subject`)."""

    def __init__(self, stack: ExitStack) -> None:
        self._runner = stack.enter_context(asyncio.Runner())
        self._processes: list[asyncio.subprocess.Process] = []

    def start(self, ranks: int) -> Collection[int]:
        """Start ranks of sleep."""
        self._processes = self._runner.run(plain_start(dict.fromkeys(range(ranks), ("sleep", "600"))))
        return [process.pid for process in self._processes]

    def idle(self, seconds: float) -> None:
        """Let the loop run."""
        self._runner.run(asyncio.sleep(seconds))

    def close(self) -> None:
        """End them."""
        self._runner.run(plain_close(self._processes))
        self._processes = []

    def run(self, ranks: int) -> None:
        """Run ranks of /bin/true."""
        self._runner.run(self._to_the_result(ranks))

    async def _to_the_result(self, ranks: int) -> None:
        for process in await plain_start(dict.fromkeys(range(ranks), ("/bin/true",))):
            await process.wait()


class WithTorch:
    """torch (`Subject`)."""

    def __init__(self, stack: ExitStack) -> None:
        self._start = stack.enter_context(torch_starter())
        self._context: Any = None

    def start(self, ranks: int) -> Collection[int]:
        """Start ranks of sleep."""
        self._context = self._start("sleep", dict.fromkeys(range(ranks), ("600",)))
        pids: dict[int, int] = self._context.pids()
        return pids.values()

    def idle(self, seconds: float) -> None:
        """Let it look ten times a second."""
        self._context.wait(timeout=seconds, period=PERIOD)

    def close(self) -> None:
        """End them."""
        self._context.close()
        self._context = None

    def run(self, ranks: int) -> None:
        """Run ranks of /bin/true."""
        self._start("/bin/true", dict.fromkeys(range(ranks), ())).wait(period=PERIOD)


SUBJECTS: Final[dict[str, type[WithAioelastic] | type[WithPlainAsyncio] | type[WithTorch]]] = {
    AIOELASTIC: WithAioelastic,
    ASYNCIO: WithPlainAsyncio,
    TORCH: WithTorch,
}


def measure(case: Case, _: Path) -> dict[str, float]:
    """Let one subject start, hold and end so many ranks, after a few for warming up."""
    ranks, idle = case.parameters["ranks"], case.parameters["idle"]
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with ExitStack() as stack:
        subject = SUBJECTS[case.subject](stack)
        _held(subject, 4)
        subject.run(4)
        figures = {**_held(subject, ranks, idle), "result": _milliseconds(subject.run, ranks)}
        if case.label == MANY:
            few = [{**_held(subject, 64), "result": _milliseconds(subject.run, 64)} for _ in range(5)]
            for figure in ("both", "result"):
                one_of_64 = statistics.median(each[figure] for each in few) / 64
                figures[f"{figure}_growth"] = figures[figure] / ranks / one_of_64
    return figures


def _held(subject: Subject, ranks: int, idle: float = 0) -> dict[str, float]:
    """Start ranks of sleep, look at what they take, and end them."""
    memory, descriptors = _memory(), _descriptors()
    begin = time.perf_counter()
    pids = subject.start(ranks)
    start = (time.perf_counter() - begin) * 1e3
    figures = {
        "memory": (_memory() - memory) / ranks,
        "descriptors": (_descriptors() - descriptors) / ranks,
    }
    if idle:
        subject.idle(2)  # what prepares for its work has done so by then
        meter = CpuMeter(pids)
        subject.idle(idle)
        figures["all"] = meter.figures()["all"]
    close = _milliseconds(subject.close)
    return {**figures, "start": start, "close": close, "both": start + close}


def _milliseconds(run: Callable[..., None], *args: int) -> float:
    begin = time.perf_counter()
    run(*args)
    return (time.perf_counter() - begin) * 1e3


def _memory() -> int:
    """Give this process's resident memory in kB: exact there, and not less for what a guard shares of it."""
    for line in Path("/proc/self/smaps_rollup").read_text().splitlines():
        if line.startswith("Rss:"):
            return int(line.split()[1])
    raise LookupError


def _descriptors() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))
