"""The supervisor's side of the guard: one helper process for all groups of a program, as long as there is a group.

::

    supervisor ──ledger (a file in memory, one per group)──▶ read when the supervisor is gone
         └──────socket (a group begins, streams, a group is over)──▶ guard

It is told of a group before the group's first rank exists. It is killed when the last group is over, so it never
lingers, and nobody who counts processes finds one more.
"""

import array
import asyncio
import contextlib
import fcntl
import logging
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Protocol

import anyio

from aioelastic._base.defaults import REAP_TIMEOUT
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._base.signals import signals_held_back
from aioelastic._base.threads import in_thread
from aioelastic._errors.exceptions import RankStartError
from aioelastic._guard.ledger import Terms, note_ended, note_started, note_starting, open_ledger
from aioelastic._guard.program import MOST_DESCRIPTORS

logger = logging.getLogger("aioelastic")

Streams = Sequence[tuple[int, int]]
"""Pairs of the reading end of a pipe and the file that is to get what is left in it."""

_PROGRAM = """
import sys
sys.path.insert(0, sys.argv[1])
import program
program.main(*map(int, sys.argv[3:]), sys.argv[2])
"""

_FOLDER = __file__.rpartition("/")[0]

_COMMAND = (sys.executable, "-I", "-S", "-c", _PROGRAM, _FOLDER, _FOLDER.rpartition("/aioelastic/")[0])
"""Not the program's file itself: Python compiles a script anew each time, and a module once."""


class GroupWatch(Protocol):
    """What a group tells about itself, in case that its supervisor ends before it."""

    def begin(self) -> None:
        """Have the group watched; before its first rank is started.

        Raises:
            RankStartError: There can be no guard.
        """
        ...

    def note_starting(self, rank: int) -> None:
        """Note that a rank is about to be started, with its streams open."""
        ...

    def note_started(self, rank: int, pid: int) -> None:
        """Note a rank's process."""
        ...

    def note_ended(self, rank: int) -> None:
        """Note that a rank's process has ended."""
        ...

    def end(self) -> None:
        """Have the group watched no more: there is nothing left of it."""
        ...

    async def ended(self) -> None:
        """Wait until nothing is left of a guard that `end` has made superfluous; bounded."""
        ...


class Unwatched:
    """A group that goes without a guard (`GroupWatch`)."""

    def begin(self) -> None:
        """Do nothing."""

    def note_starting(self, rank: int) -> None:
        """Do nothing."""

    def note_started(self, rank: int, pid: int) -> None:
        """Do nothing."""

    def note_ended(self, rank: int) -> None:
        """Do nothing."""

    def end(self) -> None:
        """Do nothing."""

    async def ended(self) -> None:
        """Do nothing."""


class Watch:
    """A group in the guard's charge (`GroupWatch`).

    Args:
        token: The group's token.
        terms: How it is to be ended.
        streams_of: Gives the open streams of a rank.
    """

    def __init__(self, token: str, terms: Terms, streams_of: Callable[[int], Streams]) -> None:
        self.token = token
        self._loop = asyncio.get_running_loop()
        self._terms = terms
        self._streams_of = streams_of
        self._ranks: list[int] = []
        self._ledger: int | None = None
        self._helper: _Helper | None = None
        self._superfluous: _Helper | None = None

    def begin(self) -> None:
        """Have the group watched."""
        try:
            self._ledger = keep_private(open_ledger(self._terms))
            self._helper = _guard.add(self)
        except OSError as error:
            self.end()
            doing = "be guarded against this program's death (orphan_guard=False does without that)"
            raise RankStartError(0, _COMMAND, None, error, doing) from error

    def note_starting(self, rank: int) -> None:
        """Note that a rank is about to be started."""
        if self._ledger is not None and self._helper is not None:
            note_starting(self._ledger, rank)
            self._ranks.append(rank)
            self._entrust(self._helper, self._streams_of(rank))

    def note_started(self, rank: int, pid: int) -> None:
        """Note a rank's process."""
        if self._ledger is not None:
            note_started(self._ledger, rank, pid)

    def note_ended(self, rank: int) -> None:
        """Note that a rank's process has ended."""
        if self._ledger is not None:
            note_ended(self._ledger, rank)

    def move_to(self, helper: "_Helper") -> None:
        """Put the group into the charge of a guard that replaces one that has died; from any thread."""
        with contextlib.suppress(RuntimeError):  # the loop is closed, and the group with it
            self._loop.call_soon_threadsafe(self._move_to, helper)

    def end(self) -> None:
        """Have the group watched no more."""
        if self._ledger is not None:
            self._superfluous = _guard.remove(self)
            close_private(self._ledger)
            self._ledger = None

    async def ended(self) -> None:
        """Wait until nothing is left of a superfluous guard."""
        helper, self._superfluous = self._superfluous, None
        if helper is not None:
            with anyio.CancelScope(shield=True), anyio.move_on_after(REAP_TIMEOUT):
                await in_thread(helper.reap)

    def introduce(self, helper: "_Helper") -> None:
        """Tell a guard of the group.

        Raises:
            OSError: It has died, or has not read what it was told for long.
        """
        if self._ledger is not None:
            helper.tell(b"W", self.token, [self._ledger])

    def _move_to(self, helper: "_Helper") -> None:
        if self._ledger is not None:
            self._helper = helper
            # It may have died again; the next start sees that.
            with contextlib.suppress(OSError):
                self.introduce(helper)
            for rank in self._ranks:
                self._entrust(helper, self._streams_of(rank))

    def _entrust(self, helper: "_Helper", streams: Streams) -> None:
        descriptors = [descriptor for stream in streams for descriptor in stream]
        for start in range(0, len(descriptors), MOST_DESCRIPTORS):
            try:
                helper.tell(b"S", self.token, descriptors[start : start + MOST_DESCRIPTORS])
            except OSError as error:
                # It has died, which the next start sees; or too many descriptors are under way to it.
                logger.debug("the guard could not be told of streams: %s", error)


def watch_group(name: str, token: str, terms: Terms, streams_of: Callable[[int], Streams]) -> GroupWatch:
    """Give what watches a group; nothing does in a frozen program, which has no interpreter for the guard.

    Args:
        name: The group's name.
        token: See `Watch`.
        terms: See `Watch`.
        streams_of: See `Watch`.
    """
    if sys.executable and not getattr(sys, "frozen", False):
        return Watch(token, terms, streams_of)
    logger.warning("group %r has no orphan guard: there is no interpreter in a frozen program", name)
    return Unwatched()


class _Helper:
    """One guard process.

    Raises:
        OSError: It cannot be started.
    """

    def __init__(self) -> None:
        self._socket, theirs = socket.socketpair()
        keep_private(self._socket.fileno())
        self._socket.setblocking(False)
        with theirs, contextlib.ExitStack() as opened:
            try:
                # In a program without standard streams it could have the number of one, which the guard gets anew.
                given = fcntl.fcntl(theirs.fileno(), fcntl.F_DUPFD_CLOEXEC, 3)
                opened.callback(os.close, given)
                self._process = _started([*_COMMAND, str(given), str(os.getpid())], given)
            except BaseException:
                self._close()
                raise

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def is_alive(self) -> bool:
        """Tell whether it lives; one that does not is reaped by that."""
        return self._process.poll() is None

    def tell(self, what: bytes, token: str, descriptors: Sequence[int] = ()) -> None:
        """Send a frame; it never waits.

        Raises:
            OSError: The guard is gone, or has not read for long.
        """
        attached = array.array("i", descriptors)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, attached)] if descriptors else []
        self._socket.sendmsg([what + token.encode()], rights)

    def kill(self) -> None:
        """End it, without waiting."""
        self._process.kill()
        self._close()

    def reap(self) -> None:
        """Wait for its end (blocking)."""
        self._process.wait()

    def forget(self) -> None:
        """Be a copy in a forked process: the guard is the original's."""
        self._process.returncode = 0
        self._socket.detach()

    def _close(self) -> None:
        close_private(self._socket.detach())


def _started(command: Sequence[str], given: int) -> "subprocess.Popen[bytes]":
    """Start the guard's program, with all signals blocked."""
    with signals_held_back():
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
            pass_fds=(given,),
        )


class _Guard:
    """The guard of this program, whichever process that is at the moment; safe to use from all threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._watches: dict[str, Watch] = {}
        self._helper: _Helper | None = None

    def add(self, watch: Watch) -> _Helper:
        """Put a group into the charge of a process, a new one if there is none or it has died.

        Raises:
            OSError: There can be none.
        """
        with self._lock:
            helper = self._helper
            others = list(self._watches.values())
            # First: whatever fails below, `remove` then ends a process that was started for this group.
            self._watches[watch.token] = watch
            try:
                if helper is None or not helper.is_alive():
                    raise ProcessLookupError
                watch.introduce(helper)
            except OSError:
                helper = self._replace(others)
                watch.introduce(helper)
            return helper

    def _replace(self, watches: Sequence[Watch]) -> _Helper:
        """Start a process, in the place of one that has died or does not listen."""
        before, self._helper = self._helper, None
        if before is not None:
            logger.warning("the orphan guard (pid %d) does not work any more: starting another", before.pid)
            before.kill()
            before.reap()
        self._helper = _Helper()
        for watch in watches:
            watch.move_to(self._helper)
        return self._helper

    def remove(self, watch: Watch) -> _Helper | None:
        """Take a group away; give the process if that was its last one: killed, and to be reaped."""
        with self._lock:
            if self._watches.pop(watch.token, None) is None or self._helper is None:
                return None
            if self._watches:
                with contextlib.suppress(OSError):
                    self._helper.tell(b"D", watch.token)
                return None
            helper, self._helper = self._helper, None
            helper.kill()
            return helper

    def forget(self) -> None:
        """Begin anew in a forked copy of the program."""
        self._lock = threading.Lock()
        self._watches = {}
        helper, self._helper = self._helper, None
        if helper is not None:
            helper.forget()


_guard = _Guard()
os.register_at_fork(after_in_child=_guard.forget)
