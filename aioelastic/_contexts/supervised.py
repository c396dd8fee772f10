"""What contexts and agents have in common: they are watched, and closed."""

import signal
from abc import ABC, abstractmethod
from types import TracebackType

from aioelastic._supervision.events import EventHub, EventStream
from aioelastic._supervision.states import GroupState


class Supervised(ABC):
    """Ranks under supervision: a `PContext`, or a `LocalElasticAgent`.

    Leaving ``async with`` closes it.

    Attributes:
        name: What people call it.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._events = EventHub()

    @property
    @abstractmethod
    def state(self) -> GroupState:
        """Where it stands."""

    @abstractmethod
    async def close(self, death_sig: signal.Signals | None = None, timeout: float | None = None) -> None:  # noqa: ASYNC109 - the seed's name
        """End all ranks, and wait until nothing of them is left."""

    def events(self) -> EventStream:
        """Give what happens from now on, after what stands now; to be called in the event loop's thread.

        It may be called at any time, also before the start. What stands is told by the latest event of each kind and
        rank, so a late reader knows which ranks run. The stream ends when nothing of the ranks is left.

        Returns:
            An async iterator of `Event`; each call gives a new one, with a pace of its own.

        Example:
            >>> import asyncio
            >>> from aioelastic import start_processes
            >>> async def main() -> None:
            ...     async with start_processes("job", "sh", args={0: ("-c", "exit 3")}) as context:
            ...         async for event in context.events():
            ...             if event.rank is not None:
            ...                 print(event.rank, event.kind.value, event.exitcode)
            >>> asyncio.run(main())
            0 rank started None
            0 rank exited 3
            0 group failed 3
        """
        return self._events.subscribe()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()
