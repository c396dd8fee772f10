"""Signalling all that belongs to one rank, and nothing else."""

import contextlib
import os
from collections.abc import Collection

from aioelastic._processes.child import Child
from aioelastic._processes.process_handles import signal_member


def signal_session(child: Child, number: int, members: Collection[int]) -> None:
    """Send a signal to a rank's process group at once, and to the given members of its session outside the group.

    Args:
        child: The rank's leader. A function rank opens its session itself, so it may have none yet: then it has no
            children either, and is signalled alone.
        number: The signal.
        members: What was found alive in its session.
    """
    leader = child.pid
    group_is_ours = not child.has_exited()
    if group_is_ours:
        # The leader is not even a zombie, so its number is still its own, and the group is reached in one go.
        try:
            os.killpg(leader, number)
        except ProcessLookupError:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                child.send_signal(number)
        except PermissionError:
            pass
    for member in members:
        if not (group_is_ours and _group_of(member) == leader):
            signal_member(member, leader, number)


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
