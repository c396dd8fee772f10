"""What an agent looks for in the events of a group: when it failed, and who is late."""

import asyncio

from aioelastic._contexts.context import PContext
from aioelastic._supervision.events import Event, EventKind
from aioelastic._supervision.exits import ExitCause
from aioelastic._supervision.states import GroupState


class GroupWatcher:
    """Notes when a group fails, and ends one whose first rank has succeeded a while ago, if that is asked for.

    Args:
        context: The group.
        timeout: Seconds that the others have from then on; ``None`` for as long as they want.
    """

    def __init__(self, context: PContext, timeout: float | None) -> None:
        self._context = context
        self._timeout = timeout
        self._loop = asyncio.get_running_loop()
        self._failed_at: float | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._closing: asyncio.Task[None] | None = None

    def look_at(self, event: Event) -> None:
        """See whether it is the group's failure, or the first rank that has succeeded."""
        if event.kind is EventKind.GROUP_FAILED:
            self._failed_at = self._loop.time()
        succeeded = event.kind is EventKind.RANK_EXITED and event.exitcode == 0 and event.cause is ExitCause.ENDED
        if succeeded and self._timeout is not None and self._timer is None:
            self._timer = self._loop.call_later(self._timeout, self._close)

    @property
    def state(self) -> GroupState:
        """How the group ended: if what was left of it was stopped for being late, it has succeeded."""
        state = self._context.state
        return GroupState.SUCCEEDED if self._closing is not None and state is GroupState.STOPPED else state

    def lifetime(self, begin: float) -> float:
        """Give the seconds from a begin (loop time) to the failure, or until now; the wall's clock may be set."""
        return (self._loop.time() if self._failed_at is None else self._failed_at) - begin

    async def end(self) -> None:
        """Be done with it: the group has ended."""
        if self._timer is not None:
            self._timer.cancel()
        if self._closing is not None:
            await self._closing

    def _close(self) -> None:
        if self._context.state is GroupState.RUNNING:
            self._closing = asyncio.ensure_future(self._context.close())
