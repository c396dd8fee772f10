"""The table of all processes, read once per step for a whole group."""

import asyncio
import contextlib
import os
from collections.abc import Collection, Mapping
from itertools import islice

import psutil

from aioelastic._processes.process_handles import handle_has_exited, member_handle, open_handle

_WATCHED_AT_ONCE = 64
"""Members awaited in one go: a group of thousands must not need as many descriptors to close."""

_LOOK_AGAIN = 0.05
"""Seconds between two looks where processes cannot be held by handle (macOS, no descriptors left)."""


class SystemTable:
    """The running system's processes (`ProcessTable`)."""

    def live_members(self, leaders: Mapping[int, bool]) -> dict[int, list[int]]:
        """Find what is alive in the leaders' sessions.

        A session's number cannot be given away while it has members, so matching it is safe, but for one case: all
        members are gone, and the number came to a stranger that opened a session of its own. Then the leader's number
        is alive although our leader has exited, and the session is left alone.
        """
        try:
            pids = psutil.pids()
        except OSError:
            # No descriptor left to read /proc with. The leaders can be asked and their groups reached without, and
            # each one that ends gives back the descriptors with which the next look is a full one.
            return {leader: [leader] for leader, has_exited in leaders.items() if not has_exited}
        found: dict[int, list[int]] = {}
        for pid in pids:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                session = os.getsid(pid)
                if session in leaders and _is_alive(pid, session):
                    found.setdefault(session, []).append(pid)
        for leader, has_exited in leaders.items():
            if has_exited and leader in found.get(leader, ()):
                del found[leader]
            elif not has_exited:
                # A function rank opens its session itself: it may not have done so yet, or only during this look.
                found.setdefault(leader, [leader])
        return found

    async def wait_gone(self, pids: Collection[int]) -> None:
        """Wait until the first few of the processes have ended."""
        handles: dict[int, asyncio.Future[None]] = {}
        loop = asyncio.get_running_loop()
        unheld = False
        try:
            for pid in islice(pids, _WATCHED_AT_ONCE):
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


def _is_alive(pid: int, session: int) -> bool:
    with member_handle(pid, session) as handle:
        if handle is not None:
            return not handle_has_exited(handle)
        try:
            return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
        except psutil.Error:
            return False
        except OSError:
            return True  # No descriptor left to ask with; getsid has just found it.


def _set_gone(loop: asyncio.AbstractEventLoop, handle: int, gone: "asyncio.Future[None]") -> None:
    # A pidfd stays readable: left in the loop it would call back for ever while the others are awaited.
    loop.remove_reader(handle)
    if not gone.done():
        gone.set_result(None)
