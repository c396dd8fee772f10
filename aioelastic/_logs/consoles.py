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
from collections.abc import Hashable, Sequence
from typing import Any, Literal, TextIO

from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._base.threads import BlockingThreads
from aioelastic._logs.outlets import FailureListener, Giver, Outlet, Sink, words_of_failure, write_all
from aioelastic._logs.status_line import StatusLine

_consoles: dict[Hashable, "Console"] = {}
_registry_lock = threading.Lock()

_NOBODY = object()
"""Stands for a giver that has left a line open and is gone."""


class Console:
    """One console, shared by all that write to it.

    Attributes:
        terminal: A person may be looking: cursor movements matter, control characters are dangerous.
        users: How many groups' streams use it.
        streams: The program's own text files that lead there; what they hold comes before what is shown.
        colours: Whether ranks that begin to use it get prefixes in colours, on a terminal.
    """

    def __init__(self, key: Hashable, sink: Sink, streams: list[TextIO], *, terminal: bool) -> None:
        self.terminal = terminal
        self.users = 0
        self.streams = streams
        self.colours = False
        self._key = key
        self._name = sink.name
        self._status = sink if isinstance(sink, StatusLine) else None
        self._thread = BlockingThreads(f"aioelastic: {sink.name}", 1)
        self._outlet = Outlet(sink, self._thread.submit, self._tell_failure)
        self._listeners: list[FailureListener] = []
        self._lock = threading.Lock()
        self._open_line: object = None

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
                    # The line was ended by whoever interrupted it: its end alone would make an empty line, and so would
                    # the return before the next state of a progress bar.
                    data = data.removeprefix(prefix + b"\n").removeprefix(prefix + b"\r")
                if self._open_line is not None and data:
                    data = b"\n" + data
            if not data:
                return 0
            self._open_line = None if data.endswith(b"\n") else giver
            self._put(giver, data)
        return len(data)

    def leave(self, giver: Giver) -> int:
        """End the line that a giver has left open."""
        with self._lock:
            if self._open_line is not giver:
                return 0
            self._open_line = None
            self._put(giver, b"\n")
        return 1

    def set_status(self, giver: Giver, text: bytes) -> None:
        """Keep a text below the log, in a terminal's last line; there is one, whoever gives it.

        While a line is open, which a prompt and a progress bar leave it, the text is not shown. What else of the
        program writes to the terminal by itself, or a rank that inherits it, writes into that line.

        Args:
            giver: Who is told that nothing of its own was written.
            text: One line without its end, in UTF-8, colours but no other controls in it; empty for none.
        """
        if self._status is not None and self._status.change(text):
            self._put(giver, b"")

    def listen(self, listener: FailureListener) -> None:
        """Have one of the users told when the console fails, or that it has failed already."""
        self._listeners.append(listener)
        if self._outlet.failure is not None:
            listener(words_of_failure(self._name, self._outlet.failure))

    def miss(self, count: int) -> None:
        """Count bytes that the console will not get."""
        self._outlet.miss(count)

    def forget(self, giver: Giver) -> None:
        """Drop what a giver has put and the console has not begun to write, and count it."""
        with self._lock:
            if self._outlet.forget(giver):
                # Where the console stands is not known; a line end too many is better than two lines in one.
                self._open_line = _NOBODY

    def revive(self) -> bool:
        """Be used again while stuck in a write for those who have released it; tell whether that is possible."""
        if not self._outlet.reopen():
            return False
        # Only now: a thread whose end is taken back for nothing would stay for ever.
        self._thread.reopen()
        return True

    async def release(self, listener: FailureListener | None = None) -> None:
        """Give up one use, and its listener; the last one ends the console's thread, as soon as it is not stuck.

        As long as it is stuck it can be had again, since a second thread would write into the line it stands in.
        """
        if listener is not None:
            self._listeners.remove(listener)
        with _registry_lock:
            self.users -= 1
            if self.users:
                return
            if self._status is not None:
                # Whoever has the console again while it is stuck did not ask for it.
                self._status.forget()
            self._outlet.close(self._forget_unused)
        await self._thread.close()
        await self._outlet.abandon()

    def _put(self, giver: Giver, data: bytes) -> None:
        self._outlet.put(giver, data)
        # The outlet may have asked for its thread already, by the loop of another group.
        self._thread.see_to_calls()

    def _tell_failure(self, words: str) -> None:
        for listener in tuple(self._listeners):
            listener(words)

    def _forget_unused(self) -> None:
        with _registry_lock:
            if _consoles.get(self._key) is self:
                del _consoles[self._key]


def acquire_console(name: Literal["stdout", "stderr"]) -> Console | None:
    """Give the console of a stream, shared with everybody who writes to the same one.

    ``2>&1`` makes stdout and stderr the same file: then they are the same console, too.

    Returns:
        The console, to be released; ``None`` where there is none (``sys.stdout`` is ``None`` in a daemon).
    """
    stream: TextIO | None = getattr(sys, name)
    if stream is None or _is_closed(stream):
        return None
    terminal = _is_terminal(stream)
    descriptor = _own_descriptor(stream)
    if descriptor is None:
        return _shared(("object", id(stream)), _ObjectSink(stream, name), [], terminal=terminal)
    about = os.fstat(descriptor)
    key = ("file", about.st_dev, about.st_ino, about.st_rdev)
    streams = [stream]
    sink: Sink = _DescriptorSink(descriptor, streams, name)
    if terminal:
        sink = StatusLine(sink, descriptor)
    return _shared(key, sink, streams, terminal=terminal)


def _shared(key: Hashable, sink: Sink, streams: list[TextIO], *, terminal: bool) -> Console:
    """Give the console that is in use, and close the sink, or a new one on the sink."""
    with _registry_lock:
        console = _consoles.get(key)
        if console is None or not (console.users or console.revive()):
            console = _consoles[key] = Console(key, sink, streams, terminal=terminal)
        else:
            sink.close()
            console.streams += [stream for stream in streams if stream not in console.streams]
        console.users += 1
    return console


def _is_closed(stream: TextIO) -> bool:
    try:
        return bool(getattr(stream, "closed", False))
    except ValueError:  # what is left of a text file after detach()
        return True


def _own_descriptor(stream: TextIO) -> int | None:
    """Duplicate the descriptor behind a real text file; a closed one's number may be given to another file later.

    A notebook's stream has a ``fileno`` too, but it leads past the notebook: only real files are taken by descriptor.
    """
    if not isinstance(stream, io.TextIOWrapper):
        return None
    try:
        return keep_private(os.dup(stream.fileno()))
    except (OSError, ValueError):
        return None


def _is_terminal(stream: TextIO) -> bool:
    try:
        return bool(stream.isatty())
    except Exception:  # noqa: BLE001 - a stand-in object may lack or break it
        return False


class _DescriptorSink:
    """A console by its descriptor (owned)."""

    def __init__(self, descriptor: int, streams: list[TextIO], name: str) -> None:
        self.name = f"the console ({name})"
        self._descriptor = descriptor
        self._streams = streams

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write after what the program itself has printed and not flushed yet."""
        for stream in self._streams:
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        write_all(self._descriptor, pieces)

    def close(self) -> None:
        """Close our duplicate."""
        close_private(self._descriptor)


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
            encoding = getattr(self._stream, "encoding", None) or "ascii"
            self._stream.write(text.encode(encoding, "backslashreplace").decode(encoding))
        flush = getattr(self._stream, "flush", None)
        if flush is not None:
            flush()

    def close(self) -> None:
        """Leave the object to its owner."""


def _forget_consoles() -> None:
    """Let a forked child have consoles of its own: the threads of these were not forked, and any lock may be held."""
    global _registry_lock  # noqa: PLW0603 - as threading does it
    _registry_lock = threading.Lock()
    _consoles.clear()


os.register_at_fork(after_in_child=_forget_consoles)
