"""The file of a run's events, at moments that a run comes to by chance."""

import asyncio
import json
from pathlib import Path

from aioelastic._agent.event_file import EventFile
from aioelastic._supervision.events import Event, EventHub, EventKind


async def test_the_end_of_the_loop_may_come_before_the_writer(tmp_path: Path) -> None:
    """A writer that is cancelled before its first step, as the loop's end does it, leaves nothing unwritten."""
    hub = EventHub()
    file = EventFile(hub.subscribe())
    before = asyncio.all_tasks()
    file.open(str(tmp_path / "events.jsonl"))
    for task in asyncio.all_tasks() - before:
        task.cancel()
    hub.close(Event(kind=EventKind.RUN_ENDED))
    await file.close()

    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    assert json.loads(line)["kind"] == "run ended"
