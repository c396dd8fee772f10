"""The table of all processes, read once per step for a whole group."""

import asyncio
import contextlib
import os
from collections.abc import Collection, Mapping
from itertools import islice

from aioelastic._processes.members import Member, find_members, list_pids
from aioelastic._processes.process_handles import open_handle

_WATCHED_AT_ONCE = 64
"""Members awaited in one go: a group of thousands must not need as many descriptors to close."""

_LOOK_AGAIN = 0.05
"""Seconds between two looks where processes cannot be held by handle (macOS, no descriptors left)."""


class SystemTable:
    """The running system's processes (`ProcessTable`)."""

    def members(self, leaders: Mapping[int, bool], groups: Collection[str] = ()) -> list[Member]:
        """Find what is alive of some ranks."""
        # Without a descriptor left to read /proc with the leaders can still be asked and their groups reached, and each
        # one that ends gives back the descriptors with which the next look is a full one.
        found: list[Member] = []
        with contextlib.suppress(OSError):
            found = find_members(list_pids, leaders, groups)
        # A function rank opens its session itself: it may not have done so yet, or only during this look.
        seen = {member.pid for member in found}
        return found + [Member(pid, pid) for pid, has_exited in leaders.items() if not has_exited and pid not in seen]

    async def wait_gone(self, pids: Collection[int]) -> None:
        """Wait until the processes have ended, some at a time."""
        left = iter(pids)
        while some := list(islice(left, _WATCHED_AT_ONCE)):
            await _wait_gone(some)


async def _wait_gone(pids: Collection[int]) -> None:
    handles: dict[int, asyncio.Future[None]] = {}
    loop = asyncio.get_running_loop()
    unheld = False
    try:
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                handle = open_handle(pid)
                if handle is None:
                    unheld = True
                    break
                handles[handle] = gone = loop.create_future()
                loop.add_reader(handle, _set_gone, loop, handle, gone)
        if handles:
            await asyncio.wait(handles.values())
        elif unheld:
            # Not psutil's wait: it would reap our children, and their statuses would be lost to asyncio.
            await asyncio.sleep(_LOOK_AGAIN)
    finally:
        for handle in handles:
            loop.remove_reader(handle)
            os.close(handle)


def _set_gone(loop: asyncio.AbstractEventLoop, handle: int, gone: "asyncio.Future[None]") -> None:
    # A pidfd stays readable: left in the loop it would call back for ever while the others are awaited.
    loop.remove_reader(handle)
    if not gone.done():
        gone.set_result(None)
