"""Ranks that are still at work when others have done theirs: how long they are waited for."""

import asyncio

from aioelastic._contexts.context import PContext
from aioelastic._supervision.events import Event, EventKind
from aioelastic._supervision.exits import ExitCause
from aioelastic._supervision.states import GroupState


class StragglerWatch:
    """Ends a group whose first rank has succeeded a while ago, if that is asked for.

    Args:
        context: The group.
        timeout: Seconds that the others have from then on; ``None`` for as long as they want.
    """

    def __init__(self, context: PContext, timeout: float | None) -> None:
        self._context = context
        self._timeout = timeout
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    def look_at(self, event: Event) -> None:
        """See whether it is the first rank that has succeeded."""
        succeeded = event.kind is EventKind.RANK_EXITED and event.exitcode == 0 and event.cause is ExitCause.ENDED
        if succeeded and self._timeout is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._timeout, self._close)

    @property
    def state(self) -> GroupState:
        """How the group ended: if what was left of it was stopped for being late, it has succeeded."""
        state = self._context.state
        return GroupState.SUCCEEDED if self._closing is not None and state is GroupState.STOPPED else state

    async def end(self) -> None:
        """Be done with it: the group has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._closing is not None:
            await self._closing

    def _close(self) -> None:
        if self._context.state is GroupState.RUNNING:
            self._closing = asyncio.ensure_future(self._context.close())
