"""Exits: how soon one is known after it happened, and how soon a failure among several ranks is the result.

An exit happens at a moment that the loop, or torch's poll, cannot foresee. aioelastic tells of it by an event, plain
asyncio and torch by what they have people wait with. aioelastic's own ``wait()`` returns later: by then it has also
looked for what the rank left behind, and seen the logs to their end. That moment is shown beside the others.
"""

import asyncio
import contextlib
import os
import random
import signal
import statistics
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from measuring.plan import AIOELASTIC, ASYNCIO, TORCH, Case, Chart, Figure, at_most, times
from measuring.rivals import PERIOD, Commands, entrypoint_and_args, plain_close, plain_start, torch_starter

if TYPE_CHECKING:
    from aioelastic import PContext

TITLE = "From a rank's exit to the one who waits (torch looks ten times a second)"

RESULT: Final = "aioelastic, its result"

FIGURES = (
    Figure(key="killed", name="killed by SIGKILL", unit="ms", goal=times(1.15, ASYNCIO)),
    Figure(key="exited", name="a Python that exits with 0", unit="ms", goal=times(1.15, ASYNCIO)),
    Figure(key="failed", name="one of 8 fails, to the gathered result", unit="ms", goal=at_most(8)),
)

CHARTS = (Chart(name="exits", title="From a rank's exit to the one who waits, ms", figure="killed"),)

PROGRAM: Final = """
import os, sys, time
os.read(os.open(sys.argv[1], os.O_RDONLY), 1)
stamp = os.open(sys.argv[2], os.O_WRONLY)
os.write(stamp, b"%d" % time.monotonic_ns())
os._exit(0)
"""
"""A rank that waits to be told, and notes the time right before its end."""


class Happening(NamedTuple):
    """Something that is made to happen to a group.

    Attributes:
        commands: The group's ranks.
        act: Makes it happen; gets the pids.
        moment: Tells when it did (monotonic seconds).
    """

    commands: Commands
    act: Callable[[dict[int, int]], None]
    moment: Callable[[], float]


def cases(*, quick: bool) -> list[Case]:
    """Take several samples in each process."""
    parameters = {"samples": 2 if quick else 6}
    return [Case(subject=subject, parameters=parameters) for subject in (AIOELASTIC, RESULT, ASYNCIO, TORCH)]


@contextlib.contextmanager
def happenings(folder: Path) -> Iterator[dict[str, Happening]]:
    """Give what can happen, by figure, again and again."""
    path, stamp = folder / "fifo", folder / "stamp"
    os.mkfifo(path)
    stamp.touch()
    fifo = os.open(path, os.O_RDWR)  # for both, so that it need not wait for the rank
    acted = [0.0]

    def kill(pids: dict[int, int]) -> None:
        acted[0] = time.monotonic()
        os.kill(pids[0], signal.SIGKILL)

    def tell(_: dict[int, int]) -> None:
        acted[0] = time.monotonic()
        os.write(fifo, b"\n")

    program = (sys.executable, "-I", "-S", "-c", PROGRAM, str(path), str(stamp))
    failing = ("sh", "-c", 'read -r line <"$0"; exit 1', str(path))
    sleeping = ("sh", "-c", "exec sleep 60")
    try:
        yield {
            "killed": Happening({0: ("sleep", "60")}, kill, lambda: acted[0]),
            "exited": Happening({0: program}, tell, lambda: int(stamp.read_text()) / 1e9),
            "failed": Happening({**dict.fromkeys(range(7), sleeping), 7: failing}, tell, lambda: acted[0]),
        }
    finally:
        os.close(fifo)


def pause() -> float:
    """Give the seconds until something happens: the ranks are at work by then, and a poll is anywhere."""
    return random.uniform(0.06, 0.06 + PERIOD)


async def with_result(happening: Happening) -> float:
    """Let the library wait for all there is to wait for."""
    async with _started(happening) as context:
        await context.wait()
        return time.monotonic()


async def with_events(happening: Happening) -> float:
    """Read the library's events."""
    from aioelastic import EventKind  # noqa: PLC0415 - others are measured without it

    async with _started(happening) as context:
        async for event in context.events():
            if event.kind is EventKind.RANK_EXITED:
                return time.monotonic()
    raise AssertionError


@contextlib.asynccontextmanager
async def _started(happening: Happening) -> AsyncIterator["PContext"]:
    from aioelastic import start_processes  # noqa: PLC0415 - others are measured without it

    async with start_processes("bench", *entrypoint_and_args(happening.commands)) as context:
        asyncio.get_running_loop().call_later(pause(), happening.act, context.pids())
        yield context


async def with_plain_asyncio(happening: Happening) -> float:
    """Wait; if one of several fails, end the others and wait for them."""
    processes = await plain_start(happening.commands)
    pids = {rank: process.pid for rank, process in enumerate(processes)}
    asyncio.get_running_loop().call_later(pause(), happening.act, pids)
    if len(processes) == 1:
        await processes[0].wait()
    else:
        waiting = [asyncio.create_task(process.wait()) for process in processes]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await plain_close(processes)
        await asyncio.gather(*waiting)
    return time.monotonic()


def measure(case: Case, folder: Path) -> dict[str, float]:
    """Take samples of all that can happen."""
    samples = case.parameters["samples"]
    if case.subject == TORCH:
        with torch_starter() as start:

            def with_torch(happening: Happening) -> float:
                context = start(*entrypoint_and_args(happening.commands))
                threading.Timer(pause(), happening.act, [context.pids()]).start()
                context.wait(period=PERIOD)
                seen = time.monotonic()
                context.close()
                return seen

            return _medians(with_torch, samples, folder)
    with asyncio.Runner() as runner:

        def run(happening: Happening) -> float:
            # An event tells of one rank, not of what became of the others.
            if case.subject == AIOELASTIC and len(happening.commands) == 1:
                return runner.run(with_events(happening))
            return runner.run((with_plain_asyncio if case.subject == ASYNCIO else with_result)(happening))

        return _medians(run, samples, folder, *(("killed", "exited") if case.subject == RESULT else ()))


def _medians(run: Callable[[Happening], float], samples: int, folder: Path, *figures: str) -> dict[str, float]:
    """Give the medians of all figures, or of some, in milliseconds; the first sample of each warms up."""
    with happenings(folder) as all_of_them:
        return {
            figure: statistics.median([run(each) - each.moment() for _ in range(samples + 1)][1:]) * 1e3
            for figure, each in all_of_them.items()
            if not figures or figure in figures
        }
