"""Being told when somebody else writes into a file.

A rank whose stream is only redirected writes into its log file itself, so only the kernel can tell: inotify on Linux,
kqueue elsewhere. A watch tells once and then has to be made anew, so as long as nobody waits the rank's writes cost
nothing, neither the rank nor us.
"""

import asyncio
import contextlib
import itertools
import os
import select
import struct
import sys
from collections.abc import Callable
from typing import Any, Final, Protocol

from aioelastic._base.private_descriptors import close_private, keep_private, share

_IN_MODIFY: Final = 0x2
_IN_DONT_FOLLOW: Final = 0x02000000
_IN_ONESHOT: Final = 0x80000000
_IN_Q_OVERFLOW: Final = 0x4000
"""Numbers of inotify(7)."""

_EVENT: Final = struct.Struct("iIII")
_EVENTS_BYTES: Final = 4096 * _EVENT.size


class _Kernel(Protocol):
    """The kernel's side of the watches."""

    descriptor: int
    """Becomes readable when there is something to be told."""

    def watch(self, path: str) -> int:
        """Have the next change of a file told, and give the watch's number; from any thread."""
        ...

    def changes(self) -> list[int] | None:
        """Give the numbers of the watches that have told; ``None``: too many to know."""
        ...

    def close(self) -> None:
        """Give everything back."""
        ...


class FileWatch:
    """Tells of changes of files, on the loop; to be closed.

    Args:
        on_change: Called with the key of a file that has changed.

    Raises:
        OSError: The system gives no more of these.
    """

    def __init__(self, on_change: Callable[[Any], None]) -> None:
        self._on_change = on_change
        self._kernel = _open_kernel()
        self._numbers: dict[Any, int] = {}
        self._keys: dict[int, Any] = {}
        self._adding: set[Any] = set()
        self._overtaken: set[Any] = set()
        self._early: set[int | None] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._kernel.descriptor, self._see)

    def needs(self, key: Any) -> bool:
        """Tell whether the next change of a file is to be asked for: by `add`, and then in any case by `expect`.

        Otherwise that change will be told, or somebody is at it; then there is a change told once the watch is made,
        since what came before it may be unseen.
        """
        if key in self._adding:
            # Two watches of one file are one for the kernel, with one number that is told once.
            self._overtaken.add(key)
            return False
        if key in self._numbers:
            return False
        self._adding.add(key)
        return True

    def add(self, path: str) -> int:
        """Watch a file for one change; in a thread, as it looks the path up. What it gives goes to `expect`.

        Raises:
            OSError: There is no such file, or the user has too many watches.
        """
        return self._kernel.watch(path)

    def expect(self, number: int | None, key: Any) -> None:
        """Have the change that a watch tells called by a key; it may have been told before.

        Args:
            number: The watch's number; ``None`` if there is no watch.
            key: The file's key.
        """
        self._adding.discard(key)
        is_told = key in self._overtaken or number in self._early
        self._overtaken.discard(key)
        if number in self._early:
            self._early.discard(number)
        elif number is not None:
            self._numbers[key] = number
            self._keys[number] = key
        if is_told:
            self._on_change(key)

    def close(self) -> None:
        """End all watches; on the loop, or once that is closed."""
        with contextlib.suppress(RuntimeError):
            self._loop.remove_reader(self._kernel.descriptor)
        self._kernel.close()

    def _see(self) -> None:
        numbers = self._kernel.changes()
        if numbers is None:
            self._overtaken |= self._adding
            numbers = list(self._keys)
        for number in numbers:
            if number in self._keys:
                key = self._keys.pop(number)
                del self._numbers[key]
                self._on_change(key)
            else:
                # The thread that has made it has not come back yet.
                self._early.add(number)


class _Inotify:
    """Watches of Linux (`_Kernel`), without a dependency: three calls of libc."""

    def __init__(self) -> None:
        import ctypes  # noqa: PLC0415 - few groups need it

        self._library = ctypes.CDLL(None, use_errno=True)
        self._errno = ctypes.get_errno
        self.descriptor = keep_private(
            self._checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC), "max_user_instances")
        )

    def watch(self, path: str) -> int:
        """Watch for one modification."""
        mask = _IN_MODIFY | _IN_DONT_FOLLOW | _IN_ONESHOT
        number = self._library.inotify_add_watch(self.descriptor, os.fsencode(path), mask)
        return self._checked(number, "max_user_watches")

    def changes(self) -> list[int] | None:
        """Read what has been told; a watch that is over tells so, too, and that is left out."""
        try:
            data = os.read(self.descriptor, _EVENTS_BYTES)
        except BlockingIOError:
            return []
        events = list(_EVENT.iter_unpack(data))
        if any(mask & _IN_Q_OVERFLOW for _, mask, _, _ in events):
            return None
        return [number for number, mask, _, _ in events if mask & _IN_MODIFY]

    def close(self) -> None:
        """Close the descriptor, and with it all watches."""
        close_private(self.descriptor)

    def _checked(self, result: int, limit: str) -> int:
        if result < 0:
            number = self._errno()
            remedy = f" to watch log files (inotify; see fs.inotify.{limit})"
            raise OSError(number, os.strerror(number) + remedy)
        return result


if sys.platform != "linux":

    class _Kqueue:
        """Watches of macOS and the BSDs (`_Kernel`): a descriptor for each file."""

        def __init__(self) -> None:
            self._queue = select.kqueue()
            self.descriptor = keep_private(self._queue.fileno())
            self._numbers = itertools.count()
            self._files: dict[int, int] = {}

        def watch(self, path: str) -> int:
            """Watch for one write."""
            file = keep_private(os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK))
            number = next(self._numbers)
            # Before the event can come.
            self._files[number] = file
            flags, notes = select.KQ_EV_ADD | select.KQ_EV_ONESHOT, select.KQ_NOTE_WRITE | select.KQ_NOTE_EXTEND
            event = select.kevent(file, select.KQ_FILTER_VNODE, flags, notes, udata=number)
            self._queue.control([event], 0)
            return number

        def changes(self) -> list[int] | None:
            """Read what has been told."""
            numbers = [event.udata for event in self._queue.control(None, 100, 0)]
            for number in numbers:
                close_private(self._files.pop(number))
            return numbers

        def close(self) -> None:
            """Close everything."""
            while self._files:
                close_private(self._files.popitem()[1])
            share(self.descriptor)
            self._queue.close()


def _open_kernel() -> _Kernel:
    if sys.platform != "linux":
        return _Kqueue()
    return _Inotify()
