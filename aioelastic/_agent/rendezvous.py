"""What an attempt needs to know of the world: the seam at which several nodes come in."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol, TypeVar

from aioelastic._agent.world_checks import checked_address, checked_number, checked_port
from aioelastic._logs.run_names import checked_run_id

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldInfo:
    """This node's place in the world, for one attempt.

    Attributes:
        group_rank: This node's number, from 0.
        group_world_size: How many nodes there are.
        base_rank: Ranks on the nodes before this one: the global rank of local rank 0.
        world_size: Ranks on all nodes.
        master_addr: Where rank 0 is to be found; ``MASTER_ADDR`` of the ranks. An IPv6 address loses its brackets.
        master_port: The port that rank 0 listens on; ``MASTER_PORT`` of the ranks.
        run_id: The run's name, the same on all nodes and for all attempts.
        attempt: The attempt's number on all nodes, where the rendezvous counts them; by default the agent counts its
            own.

    Raises:
        SpecificationError: A value that cannot be true; its subclasses say of which kind.
    """

    group_rank: int
    group_world_size: int
    base_rank: int
    world_size: int
    master_addr: str
    master_port: int
    run_id: str
    attempt: int | None = None

    def __post_init__(self) -> None:
        checked_number("group_world_size", self.group_world_size, 1)
        checked_number("group_rank", self.group_rank, 0, self.group_world_size - 1)
        checked_number("world_size", self.world_size, 1)
        checked_number("base_rank", self.base_rank, 0, self.world_size - 1)
        object.__setattr__(self, "master_addr", checked_address("master_addr", self.master_addr))
        checked_port("master_port", self.master_port)
        checked_run_id("run_id", self.run_id)
        if self.attempt is not None:
            checked_number("attempt", self.attempt, 0)

    def by_global_rank(self, values: Mapping[int, T]) -> dict[int, T]:
        """Give a map of this node's ranks by their numbers in the world.

        Args:
            values: Local rank -> value.

        Returns:
            Global rank -> value, in the same order.
        """
        return {self.base_rank + rank: value for rank, value in values.items()}


def lone_world(size: int, port: int = 1, host: str = "localhost", run_id: str = "none") -> WorldInfo:
    """Give the world of one node."""
    return WorldInfo(
        group_rank=0,
        group_world_size=1,
        base_rank=0,
        world_size=size,
        master_addr=host,
        master_port=port,
        run_id=run_id,
    )


class Rendezvous(Protocol):
    """Tells an agent, before each attempt, its place in the world.

    `StandaloneRendezvous` and `StaticRendezvous` are two; whoever brings several nodes together writes another one.
    """

    async def next_round(self) -> WorldInfo:
        """Give the place for the next attempt, when all who take part are known.

        It may wait for others as long as it wants: the agent cancels it when it is told to stop, and goes on without
        it if it does not end then within some seconds.
        """
        ...
