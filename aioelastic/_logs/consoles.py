"""The console: ``sys.stdout`` and ``sys.stderr`` as they are when a group starts.

A terminal or a pipe is written by descriptor; pytest's ``capsys``, a notebook or anything else with a ``write`` method
is written as the object it is. Either way a thread does it, one per console and program, and only while a group uses
it: a console may block for ever, must not be made non-blocking (the flag belongs to everybody who has it open), and
must be in one hand, so that lines of different ranks, streams and groups are never mixed.
"""

import contextlib
import io
import os
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal, TextIO

from aioelastic._base.threads import BlockingThreads
from aioelastic._logs.outlets import Giver, Outlet, Sink, write_all

_consoles: dict[Hashable, "Console"] = {}
_registry_lock = threading.Lock()


class Console:
    """One console, shared by all that write to it.

    Attributes:
        terminal: A person may be looking: cursor movements matter, control characters are dangerous.
    """

    def __init__(self, key: Hashable, sink: Sink, *, terminal: bool) -> None:
        self.terminal = terminal
        self.users = 0
        self._key = key
        self._thread = BlockingThreads(f"aioelastic: {sink.name}", 1)
        self._outlet = Outlet(sink, self._thread.submit)
        self._lock = threading.Lock()
        self._open_line: Giver | None = None

    def show(self, giver: Giver, data: bytes, *, prefix: bytes, continues: bool) -> int:
        """Put a giver's records so that the line that is open is continued by its own giver, or ended.

        Args:
            giver: Whose records they are.
            data: The records, each with the prefix; the last one may be the beginning of a line.
            prefix: The prefix.
            continues: The first record goes on with the giver's own line: unless somebody else's lines have
                interrupted that one, its prefix is left out.

        Returns:
            How many bytes were put.
        """
        with self._lock:
            if self._open_line is giver:
                if continues:
                    data = data[len(prefix) :]
            else:
                if continues:
                    # The line was ended by whoever interrupted it: its end alone would make an empty line.
                    data = data.removeprefix(prefix + b"\n")
                if self._open_line is not None and data:
                    data = b"\n" + data
            if not data:
                return 0
            self._open_line = None if data.endswith(b"\n") else giver
            self._outlet.put(giver, data)
        return len(data)

    def leave(self, giver: Giver) -> int:
        """End the line that a giver has left open."""
        with self._lock:
            if self._open_line is not giver:
                return 0
            self._open_line = None
            self._outlet.put(giver, b"\n")
        return 1

    def miss(self, count: int) -> None:
        """Count bytes that the console will not get."""
        self._outlet.miss(count)

    async def release(self) -> None:
        """Give up one use; the last one ends the console's thread, as soon as it is not stuck."""
        with _registry_lock:
            self.users -= 1
            if self.users:
                return
            _consoles.pop(self._key, None)
        self._outlet.close()
        await self._thread.close()


def acquire_console(name: Literal["stdout", "stderr"]) -> Console | None:
    """Give the console of a stream, shared with everybody who writes to the same one.

    ``2>&1`` makes stdout and stderr the same file: then they are the same console, too.

    Returns:
        The console, to be released; ``None`` where there is none (``sys.stdout`` is ``None`` in a daemon).
    """
    stream: TextIO | None = getattr(sys, name)
    if stream is None or getattr(stream, "closed", False):
        return None
    descriptor = _own_descriptor(stream)
    terminal = _is_terminal(stream)
    if descriptor is None:
        return _shared(("object", id(stream)), lambda: _ObjectSink(stream, name), lambda: None, terminal=terminal)
    about = os.fstat(descriptor)
    key = ("file", about.st_dev, about.st_ino, about.st_rdev)
    return _shared(
        key, lambda: _DescriptorSink(descriptor, stream, name), lambda: os.close(descriptor), terminal=terminal
    )


def _shared(key: Hashable, make: Callable[[], Sink], unused: Callable[[], None], *, terminal: bool) -> Console:
    with _registry_lock:
        console = _consoles.get(key)
        if console is None:
            console = _consoles[key] = Console(key, make(), terminal=terminal)
        else:
            unused()
        console.users += 1
    return console


def _own_descriptor(stream: TextIO) -> int | None:
    """Duplicate the descriptor behind a real text file; a closed one's number may be given to another file later.

    A notebook's stream has a ``fileno`` too, but it leads past the notebook: only real files are taken by descriptor.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        return os.dup(stream.fileno())
    except (OSError, ValueError):
        return None


def _is_terminal(stream: TextIO) -> bool:
    try:
        return bool(stream.isatty())
    except Exception:  # noqa: BLE001 - a stand-in object may lack or break it
        return False


class _DescriptorSink:
    """A console by its descriptor (owned)."""

    def __init__(self, descriptor: int, stream: TextIO, name: str) -> None:
        self.name = f"the console ({name})"
        self._descriptor = descriptor
        self._stream = stream

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write after what the program itself has printed and not flushed yet."""
        with contextlib.suppress(OSError, ValueError):
            self._stream.flush()
        write_all(self._descriptor, pieces)

    def close(self) -> None:
        """Close our duplicate."""
        os.close(self._descriptor)


class _ObjectSink:
    """A console that is only an object with a ``write`` method."""

    def __init__(self, stream: Any, name: str) -> None:
        self.name = f"the console ({name}: {type(stream).__name__})"
        self._stream = stream

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write text; what the object's encoding lacks is escaped."""
        text = b"".join(pieces).decode("utf-8", "backslashreplace")
        try:
            self._stream.write(text)
        except UnicodeEncodeError:
            self._stream.write(text.encode("ascii", "backslashreplace").decode("ascii"))
        flush = getattr(self._stream, "flush", None)
        if flush is not None:
            flush()

    def close(self) -> None:
        """Leave the object to its owner."""
