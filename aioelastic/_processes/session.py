"""Signalling all that belongs to one rank, and nothing else."""

import contextlib
import os
import signal
from collections.abc import Collection

from aioelastic._processes.child import Child
from aioelastic._processes.members import Member, signal_member


def signal_session(child: Child, number: int, members: Collection[Member]) -> int:
    """Send a signal to a rank's process group at once, and to the given members outside the group.

    A function rank opens its session itself. As long as it has none, nothing of the user's runs in it, and it still has
    the signal state of whatever it was forked from (a fork server ignores SIGINT): then it is killed instead.

    Args:
        child: The rank's leader.
        number: The signal.
        members: What was found alive of the rank.

    Returns:
        The signal that the leader got.
    """
    leader = child.pid
    sent = number
    group_is_ours = not child.has_exited()
    if group_is_ours:
        # The leader is not even a zombie, so its number is still its own, and the group is reached in one go.
        try:
            os.killpg(leader, number)
        except ProcessLookupError:
            sent = signal.SIGKILL
            with contextlib.suppress(ProcessLookupError, PermissionError):
                child.send_signal(sent)
        except PermissionError:
            pass
    for member in members:
        if not (group_is_ours and _group_of(member.pid) == leader):
            signal_member(member, number)
    return sent


def _group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None
