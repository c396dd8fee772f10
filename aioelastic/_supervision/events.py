"""What happens to a group, told as it happens to whoever wants to know."""

import asyncio
import enum
import time
import weakref
from collections import deque
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, fields
from typing import Any, Final

from aioelastic._supervision.exits import ExitCause
from aioelastic._supervision.states import GroupState

_LIMIT: Final = 10_000
"""Events that may wait for one reader; a group of 1000 ranks makes about 4000 in its whole life."""


class EventKind(enum.Enum):
    """What has happened."""

    ATTEMPT_STARTED = "attempt started"
    """An agent has begun an attempt and knows its place in the world; no rank is started yet."""

    RANK_STARTED = "rank started"
    """A rank has been started, with its ``pid``."""

    GROUP_STARTED = "group started"
    """All ranks are started."""

    RANK_EXITED = "rank exited"
    """With ``exitcode``, ``signal`` and ``cause``."""

    GROUP_FAILED = "group failed"
    """``rank`` has failed, as the first one; the others are about to be stopped."""

    GROUP_STOPPING = "group stopping"
    """What is left of the group is being ended, beginning with ``signal``."""

    RANK_STOPPING = "rank stopping"
    """A rank was sent its first ``signal`` that is not SIGKILL."""

    RANK_KILLED = "rank killed"
    """A rank was sent SIGKILL."""

    SINK_DETACHED = "sink detached"
    """A log file (of ``rank``), a filtered copy or a console has failed; the ranks go on without it."""

    GROUP_ENDED = "group ended"
    """Nothing of the group is left, and its logs are closed. In an agent's events ``ATTEMPT_ENDED`` says so."""

    ATTEMPT_ENDED = "attempt ended"
    """Nothing of an attempt is left; ``state`` says how it ended."""

    RESTART_PLANNED = "restart planned"
    """The next attempt begins in ``delay`` seconds."""

    RUN_ENDED = "run ended"
    """An agent is done; ``state`` says how."""

    EVENTS_MISSED = "events missed"
    """The reader was too slow. What stands now follows, and what led to it is lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something that happened to a group, as `PContext.events` and `LocalElasticAgent.events` give it.

    Attributes:
        kind: What happened.
        time: When (seconds since the epoch).
        rank: The rank it happened to; of an agent the global rank. ``None`` where it is about the group.
        pid: The rank's process id, where it is about a rank that has one.
        attempt: Of an agent: the attempt's number, from 0.
        exitcode: Of ``RANK_EXITED`` and ``GROUP_FAILED``: as ``RankExit.exitcode``.
        signal: The signal that a rank was sent or died of, by name.
        cause: Of ``RANK_EXITED``: why the rank ended.
        state: Of ``GROUP_ENDED``, ``ATTEMPT_ENDED`` and ``RUN_ENDED``: how it ended.
        delay: Of ``RESTART_PLANNED``: seconds until the next attempt.
        message: What a person should know beyond that; ``""`` where there is nothing.
    """

    kind: EventKind
    time: float = field(default_factory=time.time)
    rank: int | None = None
    pid: int | None = None
    attempt: int | None = None
    exitcode: int | None = None
    signal: str | None = None
    cause: ExitCause | None = None
    state: GroupState | None = None
    delay: float | None = None
    message: str = ""

    def to_json(self) -> dict[str, Any]:
        """Give the event as JSON has it, as in ``events.jsonl``.

        Returns:
            Name -> value of what is known; enumerations by their words.

        Example:
            >>> from aioelastic import Event, EventKind
            >>> Event(kind=EventKind.RANK_STARTED, time=1.5, rank=0, pid=7).to_json()
            {'kind': 'rank started', 'time': 1.5, 'rank': 0, 'pid': 7}
        """
        values = {each.name: getattr(self, each.name) for each in fields(self)}
        return {
            name: value.value if isinstance(value, enum.Enum) else value
            for name, value in values.items()
            if value not in (None, "")
        }


class EventStream(AsyncIterator[Event]):
    """The events of a group from now on, what stands now first; ends with the group.

    It is a reader of its own: any number of them may read, each at its own pace. Who does not read costs a bounded
    amount of memory, and finds ``EVENTS_MISSED`` and what stands by then.

    Cancelling a wait for the next event loses nothing.
    """

    def __init__(self, hub: "EventHub") -> None:
        self._hub = hub
        self._waiting = deque(hub.standing())
        # For all tasks that read the same stream. A future in `asyncio.wait` would wake them a turn of the loop later.
        self._news = asyncio.Event()

    def __aiter__(self) -> "EventStream":
        return self

    async def __anext__(self) -> Event:
        while not self._waiting:
            if self._hub.is_closed:
                raise StopAsyncIteration
            self._news.clear()
            await self._news.wait()
        return self._waiting.popleft()

    def push(self, event: Event) -> None:
        """Take the next event."""
        self._waiting.append(event)
        if len(self._waiting) > max(_LIMIT, 2 * self._hub.standing_count):
            missed = Event(kind=EventKind.EVENTS_MISSED, message=f"{len(self._waiting)} events were not read in time")
            self._waiting = deque([missed, *self._hub.standing()])
        self.wake()

    def wake(self) -> None:
        """Have those who wait look again."""
        self._news.set()


class EventHub:
    """Hands each event to all who read, and remembers what stands for those who come later."""

    def __init__(self) -> None:
        self.is_closed = False
        self._standing: dict[tuple[EventKind, int | None, str], Event] = {}
        # An iterator that somebody has dropped is no reader any more.
        self._streams: weakref.WeakSet[EventStream] = weakref.WeakSet()

    def subscribe(self) -> EventStream:
        """Give a reader, beginning with what stands now."""
        stream = EventStream(self)
        self._streams.add(stream)
        return stream

    @property
    def standing_count(self) -> int:
        """How many events stand."""
        return len(self._standing)

    def standing(self) -> list[Event]:
        """Give the latest event of each kind and rank, in the order in which they came."""
        return list(self._standing.values())

    def tell(self, event: Event) -> None:
        """Hand an event out; what comes after the last one comes too late."""
        if self.is_closed:
            return
        if event.kind is EventKind.ATTEMPT_STARTED:
            self._standing.clear()
        key = event.kind, event.rank, event.message if event.kind is EventKind.SINK_DETACHED else ""
        self._standing.pop(key, None)
        self._standing[key] = event
        for stream in list(self._streams):
            stream.push(event)

    def close(self, last: Event) -> None:
        """Hand a last event out and let the readers come to their end; once."""
        if self.is_closed:
            return
        self.tell(last)
        self.is_closed = True
        for stream in list(self._streams):
            stream.wake()
