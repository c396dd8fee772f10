"""The events of a context, with real ranks."""

import asyncio
from pathlib import Path

import pytest

from aioelastic import (
    ContextStateError,
    Event,
    EventKind,
    EventStream,
    ExitCause,
    GroupState,
    LogsDest,
    start_processes,
)
from tests.helpers.groups import FAILS_ON_GO, shell_group
from tests.helpers.log_specs import Own
from tests.helpers.programs import shells

STAYS = "trap '' TERM; echo ready; while :; do sleep 0.05; done"


async def told(stream: EventStream) -> list[Event]:
    """Give what is left of a stream."""
    return [event async for event in stream]


def about(events: list[Event], rank: int | None) -> list[EventKind]:
    """Give what happened to one rank, or to the group."""
    return [event.kind for event in events if event.rank == rank]


async def test_a_group_that_fails_tells_what_happens_to_each_rank(tmp_path: Path) -> None:
    """The failure, the stop, the kill and the exits come in the order in which they happen, with rank and pid."""
    async with shell_group(tmp_path, FAILS_ON_GO, STAYS, shutdown_timeout=0.1) as context:
        events = context.events()
        pids = context.pids()
        (tmp_path / "go").touch()
        await context.wait(timeout=20)
    seen = await told(events)

    assert about(seen, 0) == [EventKind.RANK_STARTED, EventKind.RANK_EXITED, EventKind.GROUP_FAILED]
    assert about(seen, 1) == [
        EventKind.RANK_STARTED,
        EventKind.RANK_STOPPING,
        EventKind.RANK_KILLED,
        EventKind.RANK_EXITED,
    ]
    assert about(seen, None) == [EventKind.GROUP_STARTED, EventKind.GROUP_STOPPING, EventKind.GROUP_ENDED]
    assert {event.rank: event.pid for event in seen if event.rank is not None} == pids
    exits = {event.rank: event for event in seen if event.kind is EventKind.RANK_EXITED}
    assert (exits[0].exitcode, exits[0].cause) == (3, ExitCause.ENDED)
    assert (exits[1].signal, exits[1].cause) == ("SIGKILL", ExitCause.STOPPED)
    assert seen[-1].state is GroupState.FAILED
    assert [event.time for event in seen] == sorted(event.time for event in seen)


async def test_events_can_be_asked_for_before_the_start() -> None:
    """Who subscribes to a context on its way misses nothing."""
    starting = start_processes("job", "true", {0: (), 1: ()})
    events = starting.context.events()
    context = await starting
    await context.wait(timeout=20)
    await context.close()
    kinds = [event.kind for event in await told(events)]

    assert kinds.count(EventKind.RANK_STARTED) == kinds.count(EventKind.RANK_EXITED) == 2
    assert EventKind.GROUP_STOPPING not in kinds
    assert kinds[-1] is EventKind.GROUP_ENDED


@pytest.mark.parametrize("way", ["closed", "refused", "cancelled"])
async def test_events_end_with_a_group_that_never_ran(way: str) -> None:
    """Nobody waits for ever for events of a context that was closed, refused or cancelled before it ran."""
    starting = start_processes("job", "/no/such/program" if way == "refused" else "sh", shells("sleep 30"))
    events = starting.context.events()
    if way == "closed":
        await starting.context.close()
        with pytest.raises(ContextStateError):
            await starting
    elif way == "refused":
        with pytest.raises(FileNotFoundError):
            await starting
    else:
        task = asyncio.create_task(starting)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await starting.context.close()

    last = (await told(events))[-1]
    assert (last.kind, last.state) == (EventKind.GROUP_ENDED, GroupState.STOPPED)
    assert starting.context.state is GroupState.STOPPED


async def test_a_sink_that_fails_is_told_of() -> None:
    """Each destination that is detached gives one event that names it and the reason; the ranks go on."""
    specs = Own(LogsDest({0: "/dev/full"}, {}, {0: "/dev/full"}, filtered_stdout="/dev/full"))
    filters = ["line"]
    starting = start_processes("job", "sh", shells("echo line"), logs_specs=specs, duplicate_stdout_filters=filters)
    async with starting as context:
        events = context.events()
        result = await context.wait(timeout=20)
    assert result is not None
    assert not result.is_failed()

    words = {(event.rank, event.message) for event in await told(events) if event.kind is EventKind.SINK_DETACHED}
    assert words == {
        (None, "filtered copy '/dev/full' failed ([Errno 28] No space left on device)"),
        (0, "log file '/dev/full' failed ([Errno 28] No space left on device)"),
    }
