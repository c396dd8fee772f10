"""A node of its own: the world is what one agent runs."""

from collections import deque
from typing import Final

from aioelastic._agent.free_ports import choose_port
from aioelastic._agent.rendezvous import WorldInfo, lone_world
from aioelastic._agent.world_checks import checked_address, checked_number, checked_port
from aioelastic._errors.exceptions import RendezvousError
from aioelastic._logs.run_names import checked_run_id, fresh_run_id

_REMEMBERED: Final = 16
"""Ports of earlier rounds that are not given again: what is left of so old an attempt does not ask any more."""


class StandaloneRendezvous:
    """One node, whose ranks meet at a port that was free a moment ago.

    Each round has a new port, so that nobody of an old attempt joins a new one.

    Args:
        local_world_size: How many ranks the node runs.
        master_addr: Where rank 0 listens; an IPv6 address may be in brackets.
        master_port: The port for all rounds; a free one for each when not given.
        run_id: The run's name; a fresh one when not given.

    Raises:
        SpecificationError: A value that cannot be used.
        SpecificationTypeError: A value of a wrong type.

    Example:
        >>> import asyncio
        >>> from aioelastic import StandaloneRendezvous
        >>> world = asyncio.run(StandaloneRendezvous(2, run_id="trial").next_round())
        >>> world.world_size, world.group_world_size, world.run_id
        (2, 1, 'trial')
    """

    def __init__(
        self,
        local_world_size: int,
        *,
        master_addr: str = "localhost",
        master_port: int | None = None,
        run_id: str | None = None,
    ) -> None:
        self._world_size = checked_number("local_world_size", local_world_size, 1)
        self._master_addr = checked_address("master_addr", master_addr)
        self._master_port = None if master_port is None else checked_port("master_port", master_port)
        self._run_id = fresh_run_id() if run_id is None else checked_run_id("run_id", run_id)
        self._used: deque[int] = deque(maxlen=_REMEMBERED)

    async def next_round(self) -> WorldInfo:
        """Give the place, at once; with a port of its own for this round, unless one was given for all.

        Raises:
            RendezvousError: The system has no port left, or no descriptor to look for one.
        """
        port = self._master_port
        if port is None:
            # Some reads from /proc and some system calls that wait for nothing: a thread would cost more.
            try:
                port = choose_port(unlike=self._used)
            except OSError as error:
                raise RendezvousError(f"no free port for rank 0 was found ({error}): give master_port") from error
            self._used.append(port)
        return lone_world(self._world_size, port, self._master_addr, self._run_id)

    def __repr__(self) -> str:
        port = ", a new port for each round" if self._master_port is None else f" port {self._master_port}"
        return f"<StandaloneRendezvous {self._world_size} ranks, {self._master_addr}{port}, run {self._run_id!r}>"
