"""Starting ranks: how long it takes to the result, and how late the event loop's timers are meanwhile.

Ranks of /bin/true. A process with a big touched heap shows a start that copies page tables (fork). The floor is a bare
loop of ``Popen``.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Final

from measuring.delays import watch_delays
from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH, Case, Chart, Figure, at_most, times
from measuring.rivals import PERIOD, plain_start, popen_start, torch_starter

TITLE = "Start of ranks of /bin/true, to their result"

UVLOOP: Final = "aioelastic on uvloop"

FIGURES = (
    Figure(key="seconds", name="start to result", unit="ms", goal=times(1.15, ASYNCIO, "256 ranks")),
    Figure(key="max", name="loop delay, worst", unit="ms", goal=at_most(5, "256 ranks")),
)

CHARTS = (Chart(name="start", title="Start to result, ms", figure="seconds", scale="linear"),)


def cases(*, quick: bool) -> list[Case]:
    """Start many, then fewer from a process with a big heap."""
    found = []
    for ranks, heap in ((32, 0), (8, 128)) if quick else ((256, 0), (32, 1024)):
        label = f"{ranks} ranks" + (f", heap of {heap} MB" if heap else "")
        found += [
            Case(subject=subject, label=label, parameters={"ranks": ranks, "heap": heap})
            for subject in (AIOELASTIC, UVLOOP, ASYNCIO, TORCH, FLOOR)
        ]
    return found


async def with_aioelastic(ranks: int) -> float:
    """Let the library do it."""
    from aioelastic import start_processes  # noqa: PLC0415 - others are measured without it

    async with start_processes("true", "/bin/true", dict.fromkeys(range(ranks), ())) as context:
        await context.wait()
        return time.perf_counter()


async def with_plain_asyncio(ranks: int) -> float:
    """Start one after the other, then wait for all."""
    for process in await plain_start(dict.fromkeys(range(ranks), ("/bin/true",))):
        await process.wait()
    return time.perf_counter()


def with_torch(ranks: int) -> float:
    """Let torch do it."""
    with torch_starter() as start:
        start("/bin/true", dict.fromkeys(range(ranks), ())).wait(period=PERIOD)
        return time.perf_counter()


def with_popen(ranks: int) -> float:
    """Start one after the other, then wait for all, with nothing around it."""
    for process in popen_start(dict.fromkeys(range(ranks), ("/bin/true",))):
        process.wait()
    return time.perf_counter()


WITH_A_LOOP: Final[dict[str, Callable[[int], Coroutine[None, None, float]]]] = {
    AIOELASTIC: with_aioelastic,
    UVLOOP: with_aioelastic,
    ASYNCIO: with_plain_asyncio,
}
"""Each gives the moment when its result is there; what it tidies up after that is not measured here."""

WITHOUT: Final[dict[str, Callable[[int], float]]] = {TORCH: with_torch, FLOOR: with_popen}


async def watched(run: Callable[[int], Coroutine[None, None, float]], ranks: int) -> dict[str, float]:
    """Run a subject, after a small group for warming up, and watch the loop."""
    await run(4)
    begin = time.perf_counter()
    running = asyncio.create_task(run(ranks))
    late = await watch_delays(running)
    return {"seconds": (await running - begin) * 1e3, "max": late["max"]}


def measure(case: Case, _: Path) -> dict[str, float]:
    """Touch a heap, and run one subject."""
    ranks, heap = case.parameters["ranks"], bytearray(case.parameters["heap"] << 20)
    heap[::4096] = b"x" * len(heap[::4096])
    if case.subject in WITH_A_LOOP:
        return _runner(case.subject)(watched(WITH_A_LOOP[case.subject], ranks))
    run = WITHOUT[case.subject]
    run(4)
    begin = time.perf_counter()
    return {"seconds": (run(ranks) - begin) * 1e3}


def _runner(subject: str) -> Callable[..., dict[str, float]]:
    if subject != UVLOOP:
        return asyncio.run
    import uvloop  # noqa: PLC0415 - only where it is asked for

    return uvloop.run
