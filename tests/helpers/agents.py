"""Agents to test with: what they run, and what their rendezvous says."""

import asyncio
from pathlib import Path
from typing import Any

from aioelastic import Backoff, Event, EventKind, EventStream, LocalElasticAgent, WorkerSpec, WorldInfo
from aioelastic._processes.members import Member
from aioelastic._processes.system_table import SystemTable
from tests.helpers.waiting import PATIENCE

WORLD = WorldInfo(
    group_rank=1,
    group_world_size=2,
    base_rank=10,
    world_size=12,
    master_addr="localhost",
    master_port=1234,
    run_id="run",
)
"""A place in the world whose global ranks are not the local ones: 10 and 11."""


def shell_agent(script: str, **options: Any) -> LocalElasticAgent:
    """Give an agent that runs two shells, and restarts them at once."""
    values: dict[str, Any] = {"local_world_size": 2, "backoff": Backoff(first=0), **options}
    return LocalElasticAgent(WorkerSpec(entrypoint="sh", args=("-c", script), **values))


async def reached(agent: LocalElasticAgent, kind: EventKind, rank: int | None = None) -> Event:
    """Wait until an agent has told of something, of a certain rank if one is given."""
    async with asyncio.timeout(PATIENCE):
        async for event in agent.events():
            if event.kind is kind and rank in (None, event.rank):
                return event
    raise AssertionError(f"the run has ended without {kind}")


async def all_events(stream: EventStream) -> list[Event]:
    """Give what is left of a stream."""
    return [event async for event in stream]


def started(folder: Path) -> int:
    """Count the processes of ranks that `NOTES_START` noted."""
    return len(list(folder.glob("started.*")))


NOTES_START = "touch started.$$; "
"""Begins a script whose processes are counted, in its working directory."""


class FixedRendezvous:
    """Says the same at each round, and counts the rounds (a `Rendezvous`)."""

    def __init__(self, world: WorldInfo = WORLD) -> None:
        self.rounds = 0
        self._world = world

    async def next_round(self) -> WorldInfo:
        """Give the place."""
        self.rounds += 1
        return self._world


class LonelyRendezvous:
    """Waits for others who never come, after so many rounds (a `Rendezvous`)."""

    def __init__(self, rounds: int = 0) -> None:
        self.waiting = asyncio.Event()
        self.cancelled = False
        self._rounds = rounds

    async def next_round(self) -> WorldInfo:
        """Wait."""
        if self._rounds:
            self._rounds -= 1
            return WORLD
        self.waiting.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self.cancelled = True
        raise AssertionError


STUCK = 2**22 + 1
"""A number that no process has."""


class StuckTable(SystemTable):
    """The system's processes, and one of rank 0's that no signal ends."""

    def members(self, *args: Any) -> list[Member]:
        """Find what there is, and what will always be there."""
        session = next(iter(args[0]))
        return [*super().members(*args), Member(STUCK, session)]
