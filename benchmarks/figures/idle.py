"""Idle ranks: what it costs to supervise a group in which nothing happens.

CPU of the program that waits, and of processes that work for it (the guard), but not of the ranks.
"""

import asyncio
import time
from pathlib import Path

from measuring.cpu_meter import CpuMeter
from measuring.plan import AIOELASTIC, ASYNCIO, TORCH, Case, Chart, Figure, at_most
from measuring.rivals import PERIOD, plain_close, plain_start, torch_starter

TITLE = "Supervising ranks that are idle"

FIGURES = (
    Figure(key="all", name="CPU", unit="ms/s", goal=at_most(0.1, "64 ranks")),
    Figure(key="helpers", name="of it in the guard", unit="ms/s"),
)

CHARTS: tuple[Chart, ...] = ()

SLEEP = ("sleep", "600")


def cases(*, quick: bool) -> list[Case]:
    """One size; how it grows is a matter of `figures.scale`."""
    parameters = {"ranks": 64, "seconds": 1 if quick else 5}
    return [
        Case(subject=subject, label="64 ranks", parameters=parameters, rounds=2 if subject == TORCH else 3)
        for subject in (AIOELASTIC, ASYNCIO, TORCH)
    ]


async def with_aioelastic(ranks: int, seconds: float) -> dict[str, float]:
    """Let the library wait."""
    from aioelastic import start_processes  # noqa: PLC0415 - others are measured without it

    async with start_processes("sleep", "sleep", dict.fromkeys(range(ranks), SLEEP[1:])) as context:
        waiting = asyncio.create_task(context.wait())
        await asyncio.sleep(2)  # by then the guard has prepared for its work
        meter = CpuMeter(context.pids().values())
        await asyncio.sleep(seconds)
        figures = meter.figures()
    await waiting
    return figures


async def with_plain_asyncio(ranks: int, seconds: float) -> dict[str, float]:
    """Have a task wait for each."""
    processes = await plain_start(dict.fromkeys(range(ranks), SLEEP))
    waiting = [asyncio.create_task(process.wait()) for process in processes]
    await asyncio.sleep(0.5)
    meter = CpuMeter([process.pid for process in processes])
    await asyncio.sleep(seconds)
    figures = meter.figures()
    await plain_close(processes)
    await asyncio.gather(*waiting)
    return figures


def with_torch(ranks: int, seconds: float) -> dict[str, float]:
    """Let torch look ten times a second."""
    with torch_starter() as start:
        context = start("sleep", dict.fromkeys(range(ranks), SLEEP[1:]))
        time.sleep(0.5)
        meter = CpuMeter(context.pids().values())
        context.wait(timeout=seconds, period=PERIOD)
        figures = meter.figures()
        context.close()
    return figures


def measure(case: Case, _: Path) -> dict[str, float]:
    """Run one subject."""
    ranks, seconds = case.parameters["ranks"], case.parameters["seconds"]
    if case.subject == TORCH:
        return with_torch(ranks, seconds)
    run = with_aioelastic if case.subject == AIOELASTIC else with_plain_asyncio
    return asyncio.run(run(ranks, seconds))
