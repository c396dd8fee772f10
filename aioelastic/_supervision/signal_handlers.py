"""Signal handlers that are installed for a while and put back exactly, shared by all who listen at the same time.

Plain ``signal.signal``, for what it replaces can be read first: what ``loop.add_signal_handler`` replaces cannot.
"""

import asyncio
import os
import signal
import socket
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any

Listener = Callable[[int], bool]
"""Is told of a signal between any two instructions of the main thread; tells whether it can still take it."""


class Listening:
    """Has a listener told of signals until `close`; to be made and closed in the main thread, within a running loop.

    Signals that are ignored stay ignored, and those handled by C code, which Python could not put back, stay as they
    are. Others who listen already are told as well, whoever leaves first.

    Args:
        numbers: The signals.
        listener: Who is told.
    """

    def __init__(self, numbers: Iterable[int], listener: Listener) -> None:
        self._listener = listener
        self._handlers: list[_Handler] = []
        self._alarm = _alarm_of(asyncio.get_running_loop())
        try:
            for number in numbers:
                current = signal.getsignal(number)
                if current is not signal.SIG_IGN and current is not None:
                    handler: _Handler = current if isinstance(current, _Handler) else _Handler(number, current)
                    self._handlers.append(handler)
                    handler.add(listener)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop listening; the last one who does puts back what was there before."""
        while self._handlers:
            self._handlers.pop().remove(self._listener)
        self._alarm.leave()


class _Handler:
    """What is installed for a signal while anybody listens."""

    def __init__(self, number: int, replaced: Any) -> None:
        self._number = number
        self._replaced = replaced
        self._listeners: list[Listener] = []

    def __call__(self, number: int, _: FrameType | None) -> None:
        # All are told, and not only until one has taken it.
        taken = [listener(number) for listener in tuple(self._listeners)]
        if not any(taken):
            # Installed with nobody to listen: they left a closed loop behind, or somebody who had replaced this
            # handler has put it back too late. A program that cannot be ended would be worse than none of this.
            self.put_back()
            signal.raise_signal(number)

    def add(self, listener: Listener) -> None:
        """Tell one more, before the first signal can come."""
        self._listeners.append(listener)
        if self not in _installed:
            signal.signal(self._number, self)
            _installed.add(self)

    def remove(self, listener: Listener) -> None:
        """Tell one less; without any, what was replaced is put back before."""
        if self._listeners == [listener]:
            self.put_back()
        if listener in self._listeners:
            self._listeners.remove(listener)

    def put_back(self) -> None:
        """Put back what was replaced; what somebody else has installed since is theirs to take away."""
        _installed.discard(self)
        current: object = signal.getsignal(self._number)
        if current is self:
            signal.signal(self._number, self._replaced)


_installed: set[_Handler] = set()


class _Alarm:
    """Has a signal end the loop's sleep, where nothing does yet.

    The system call in which a loop sleeps is ended by a signal, and Python's handler runs; but a signal that comes
    right before that call, or that the system gives to another thread, would wait there for the next event. Python
    writes to a descriptor at once, which uvloop always watches, and asyncio only for handlers of the loop's own.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._users = 0
        self._ends: tuple[socket.socket, ...] = ()

    def enter(self) -> None:
        """Set it, for one more user."""
        if not self._ends and _wakeup_descriptor() == -1:
            reading, writing = self._ends = socket.socketpair()
            for end in self._ends:
                end.setblocking(False)
            self._loop.add_reader(reading, reading.recv, 4096)
            signal.set_wakeup_fd(writing.fileno(), warn_on_full_buffer=False)
        self._users += 1

    def leave(self) -> None:
        """Unset it after its last user."""
        self._users -= 1
        if self._users == 0:
            _alarms.pop(self._loop, None)
            if self._ends:
                self._loop.remove_reader(self._ends[0])
            self.unset()

    def unset(self) -> None:
        """Have nothing written to it any more, and close it."""
        if self._ends and _wakeup_descriptor() == self._ends[1].fileno():
            signal.set_wakeup_fd(-1)
        for end in self._ends:
            end.close()
        self._ends = ()


_alarms: dict[asyncio.AbstractEventLoop, _Alarm] = {}
"""Not only held by its users: a number that Python writes to must not be closed because nobody holds the alarm."""


def _alarm_of(loop: asyncio.AbstractEventLoop) -> _Alarm:
    alarm = _alarms.setdefault(loop, _Alarm(loop))
    alarm.enter()
    return alarm


def _wakeup_descriptor() -> int:
    """Give the descriptor that Python writes signals to, or -1; it can only be read by setting it."""
    descriptor = signal.set_wakeup_fd(-1)
    if descriptor != -1:
        signal.set_wakeup_fd(descriptor)
    return descriptor


def _leave_to_the_parent() -> None:
    """Put everything back in a forked child: it has no loop that could be told, and would wake the parent's."""
    for handler in tuple(_installed):
        handler.put_back()
    for alarm in _alarms.values():
        alarm.unset()


os.register_at_fork(after_in_child=_leave_to_the_parent)
