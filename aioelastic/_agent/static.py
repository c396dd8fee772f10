"""A place in the world that whoever starts the nodes has given out."""

from typing import Final

from aioelastic._agent.rendezvous import WorldInfo
from aioelastic._agent.world_checks import checked_number
from aioelastic._base.counts import counted

STATIC_PORT: Final = 29500
"""torchrun's port when none is given; all nodes have to know it."""

STATIC_RUN: Final = "none"
"""torchrun's name for a run when none is given; all nodes have to know it, too."""


class StaticRendezvous:
    """One node of several, each of which was told its place; all run the same number of ranks.

    Every round gives the same place. The agents do not talk to each other: when a group fails on one node, the others
    run their attempts again only when theirs fail as well, as ranks do that miss another one in a collective call.

    Args:
        local_world_size: How many ranks each node runs.
        nnodes: How many nodes there are.
        node_rank: This node's number, from 0.
        master_addr: The host of node 0, where rank 0 listens; an IPv6 address may be in brackets.
        master_port: The port that rank 0 listens on.
        run_id: The run's name, the same on all nodes.

    Raises:
        SpecificationError: A value that cannot be used.
        SpecificationTypeError: A value of a wrong type.

    Example:
        >>> import asyncio
        >>> from aioelastic import StaticRendezvous
        >>> rendezvous = StaticRendezvous(4, nnodes=2, node_rank=1, master_addr="node0")
        >>> world = asyncio.run(rendezvous.next_round())
        >>> world.base_rank, world.world_size
        (4, 8)
    """

    def __init__(
        self,
        local_world_size: int,
        *,
        nnodes: int,
        node_rank: int,
        master_addr: str,
        master_port: int = STATIC_PORT,
        run_id: str = STATIC_RUN,
    ) -> None:
        local_size = checked_number("local_world_size", local_world_size, 1)
        nodes = checked_number("nnodes", nnodes, 1)
        node = checked_number(f"node_rank (of {counted(nodes, 'node')})", node_rank, 0, nodes - 1)
        self._world = WorldInfo(
            group_rank=node,
            group_world_size=nodes,
            base_rank=node * local_size,
            world_size=nodes * local_size,
            master_addr=master_addr,
            master_port=master_port,
            run_id=run_id,
        )

    async def next_round(self) -> WorldInfo:
        """Give the place, at once and always the same."""
        return self._world

    def __repr__(self) -> str:
        world = self._world
        return (
            f"<StaticRendezvous node {world.group_rank} of {world.group_world_size}, ranks from {world.base_rank}, "
            f"{world.master_addr} port {world.master_port}, run {world.run_id!r}>"
        )
