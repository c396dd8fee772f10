"""The consoles of a round: what the supervisor's stdout and stderr are while it runs."""

import contextlib
import io
import os
import select
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

READ = ("file", "pipe", "object", "same")
"""Kinds of which it is known what has come through."""


class Collector(io.TextIOBase):
    """A console that is an object; what it gets goes to a file at once, so that it outlives the program."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)

    def write(self, text: str) -> int:
        """Take text."""
        os.write(self._descriptor, text.encode("utf-8", "surrogateescape"))
        return len(text)

    def close(self) -> None:
        """Close the file."""
        if not self.closed:
            os.close(self._descriptor)
        super().close()


@contextlib.contextmanager
def consoles(kinds: tuple[str, str], directory: Path) -> Iterator[None]:
    """Have this program's stdout and stderr be consoles of these kinds meanwhile."""
    with contextlib.ExitStack() as restored:
        for number, kind in enumerate(kinds, 1):
            stream = sys.stdout if number == 1 else sys.stderr
            stream.flush()
            restored.callback(_put_back, number, os.dup(number), stream)
            restored.callback(stream.flush)
            opened = _open(kind, directory / f"console{number}", restored)
            os.dup2(opened, number)
            os.close(opened)
            if kind == "object":
                collector = restored.enter_context(Collector(directory / f"console{number}"))
                setattr(sys, "stdout" if number == 1 else "stderr", collector)
        yield


def _put_back(number: int, kept: int, stream: object) -> None:
    os.dup2(kept, number)
    os.close(kept)
    setattr(sys, "stdout" if number == 1 else "stderr", stream)


def _open(kind: str, path: Path, restored: contextlib.ExitStack) -> int:
    if kind == "same":
        return os.dup(1)
    if kind == "full":
        return os.open("/dev/full", os.O_WRONLY)
    if kind in {"closed", "stuck"}:
        reading, writing = os.pipe()
        if kind == "closed":
            os.close(reading)
        else:
            restored.callback(_let_go, reading)
        return writing
    if kind == "object":
        path = path.with_suffix(".raw")
    return os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)


def _let_go(reading: int) -> None:
    """Let those go on who are stuck in a write: to a pipe without a reader."""
    os.close(reading)


class PipeReader:
    """Reads a console that is a pipe into a file, from outside of the supervisor, until it is stopped."""

    def __init__(self, fifo: Path) -> None:
        os.mkfifo(fifo)
        # For writing, too: so it has no end as long as this reader has not.
        self._descriptor = os.open(fifo, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        self._stopped, self._stop = os.pipe()
        self._content = bytearray()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def finish(self) -> bytes:
        """Take what is left in the pipe; give all that came."""
        os.close(self._stop)
        self._thread.join()
        os.close(self._stopped)
        os.close(self._descriptor)
        return bytes(self._content)

    def _read(self) -> None:
        poller = select.poll()
        poller.register(self._descriptor, select.POLLIN)
        poller.register(self._stopped, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poller.poll()}
            if self._descriptor in ready:
                self._content += os.read(self._descriptor, 1 << 16)
            elif self._stopped in ready:
                return
