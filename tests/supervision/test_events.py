"""The hub that hands events out, and the streams that it gives."""

import asyncio
import gc

import pytest

from aioelastic import Event, EventKind, GroupState
from aioelastic._supervision import events as module
from aioelastic._supervision.events import EventHub, EventStream

STARTED = [Event(kind=EventKind.RANK_STARTED, time=0, rank=rank, pid=100 + rank) for rank in range(3)]
ENDED = Event(kind=EventKind.GROUP_ENDED, time=9, state=GroupState.SUCCEEDED)


async def read(stream: EventStream) -> list[Event]:
    """Give what is left of a stream."""
    return [event async for event in stream]


async def test_each_reader_gets_every_event_at_its_own_pace() -> None:
    """Two readers get the same events in the same order, and both come to the end."""
    hub = EventHub()
    early, other = hub.subscribe(), hub.subscribe()
    reading = asyncio.ensure_future(read(early))
    await asyncio.sleep(0)
    for event in STARTED:
        hub.tell(event)
        await asyncio.sleep(0)
    hub.close(ENDED)

    assert await reading == await read(other) == [*STARTED, ENDED]


async def test_a_late_reader_gets_what_stands_first() -> None:
    """Of each kind and rank the latest event, in order; the attempts before are over."""
    hub = EventHub()
    old = Event(kind=EventKind.RANK_EXITED, time=0, rank=0, pid=1, exitcode=1)
    new = [Event(kind=EventKind.ATTEMPT_STARTED, time=1, attempt=1), STARTED[1], STARTED[0]]
    for event in [old, *new]:
        hub.tell(event)
    late = hub.subscribe()
    hub.tell(STARTED[2])
    hub.close(ENDED)

    assert await read(late) == [*new, STARTED[2], ENDED]
    assert await read(hub.subscribe()) == [*new, STARTED[2], ENDED]


async def test_a_cancelled_reader_loses_nothing() -> None:
    """The event that comes while a wait is cancelled is there for the next one."""
    hub = EventHub()
    stream = hub.subscribe()
    waiting = asyncio.ensure_future(anext(stream))
    await asyncio.sleep(0)
    hub.tell(STARTED[0])
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting

    assert await anext(stream) == STARTED[0]


async def test_who_does_not_read_is_told_so_and_gets_what_stands(monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory is bounded: beyond the limit there is one event that counts the missed ones, then the present state."""
    monkeypatch.setattr(module, "_LIMIT", 5)
    hub = EventHub()
    stream = hub.subscribe()
    for event in [*STARTED * 2, STARTED[0]]:
        hub.tell(event)
    hub.close(ENDED)

    missed, *rest = await read(stream)

    assert missed.kind is EventKind.EVENTS_MISSED
    assert missed.message == "7 events were not read in time"
    assert rest == [*STARTED[1:], STARTED[0], ENDED]


async def test_who_begins_with_much_that_stands_misses_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group may be so large that what stands is more than the limit."""
    monkeypatch.setattr(module, "_LIMIT", 2)
    hub = EventHub()
    for event in STARTED:
        hub.tell(event)
    stream = hub.subscribe()
    hub.close(ENDED)

    assert await read(stream) == [*STARTED, ENDED]


async def test_a_dropped_reader_is_forgotten() -> None:
    """A stream that nobody holds any more takes no events and no memory."""
    hub = EventHub()
    hub.subscribe()
    gc.collect()

    hub.tell(STARTED[0])

    assert not hub._streams


async def test_the_hub_closes_once() -> None:
    """The last event is told once, whoever closes again."""
    hub = EventHub()
    stream = hub.subscribe()
    hub.close(ENDED)
    hub.close(Event(kind=EventKind.GROUP_ENDED, state=GroupState.STOPPED))
    hub.tell(STARTED[0])

    assert await read(stream) == await read(hub.subscribe()) == [ENDED]
