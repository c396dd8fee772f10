"""The rounds of a rendezvous, as an agent sees them: watched, checked, and given up when it is to stop."""

import asyncio
import logging
from collections.abc import Awaitable
from typing import Any

from aioelastic._agent.rendezvous import Rendezvous, WorldInfo
from aioelastic._base.defaults import REAP_TIMEOUT
from aioelastic._errors.exceptions import RendezvousError

logger = logging.getLogger("aioelastic")


class Rounds:
    """Asks a rendezvous for one place after the other.

    Args:
        rendezvous: Anybody's code.
        size: How many ranks this node runs.
        stop: Set when the run is to stop.
    """

    def __init__(self, rendezvous: Rendezvous, size: int, stop: asyncio.Event) -> None:
        self._rendezvous = rendezvous
        self._size = size
        self._stop = stop

    async def next(self) -> WorldInfo | None:
        """Learn this node's place in the world; ``None`` when the run is to stop.

        Raises:
            RendezvousError: There is no place that the ranks could take.
            Exception: What the rendezvous raises.
        """
        if self._stop.is_set():
            return None
        coming: object = self._rendezvous.next_round()
        if not isinstance(coming, Awaitable):
            raise RendezvousError(f"next_round() of {self._rendezvous!r} gave {type(coming).__name__}: make it async")
        round_ = asyncio.ensure_future(coming)
        await self._until_done_or_stopped(round_)
        if self._stop.is_set():
            # Also when both came together: what is started now, nobody would stop.
            _tell_leftover(round_)
            return None
        if round_.cancelled():
            raise RendezvousError(f"next_round() of {self._rendezvous!r} was cancelled, and not by the agent")
        return self._checked(round_.result())

    async def _until_done_or_stopped(self, round_: "asyncio.Future[Any]") -> None:
        stopping = asyncio.ensure_future(self._stop.wait())
        try:
            await asyncio.wait([round_, stopping], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in (round_, stopping):
                each.cancel()
            # Bounded: it may do with its cancellation what it likes.
            await asyncio.wait([round_, stopping], timeout=REAP_TIMEOUT)

    def _checked(self, world: object) -> WorldInfo:
        if not isinstance(world, WorldInfo):
            kind = type(world).__name__
            raise RendezvousError(f"next_round() of {self._rendezvous!r} gave {kind}: let it give a WorldInfo")
        alone = world.group_world_size == 1
        if world.base_rank + self._size > world.world_size or (alone and self._size != world.world_size):
            raise RendezvousError(
                f"{self._rendezvous!r} has no place for the {self._size} ranks of this node: they would be ranks "
                f"{world.base_rank}..{world.base_rank + self._size - 1} of {world.world_size}; give both one number"
            )
        return world


def _tell_leftover(round_: "asyncio.Future[Any]") -> None:
    """Say what a rendezvous did that was no longer wanted: nobody waits for it any more."""
    if not round_.done():
        logger.warning(
            "the rendezvous goes on %g s after it was cancelled, and is left alone: %r", REAP_TIMEOUT, round_
        )
    elif not round_.cancelled() and (error := round_.exception()) is not None:
        logger.warning("the rendezvous failed when it was cancelled", exc_info=error)
