"""Terminals: what one would show of what it got, and a real one to write to."""

import os
import pty
import re
import termios
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

_PARTS: Final = re.compile(r"\x1b\[[0-9;:]*m|\x1b\[K|[\s\S]")


class TerminalModel:
    """What a terminal shows of the few things that we send: characters, line ends, returns, erasing, colours.

    Attributes:
        rows: All rows, the ones that have scrolled away too; nothing on the last ones is left out.
        column: Where the cursor stands in the last row.
    """

    def __init__(self, columns: int) -> None:
        self.rows = [""]
        self.column = 0
        self._columns = columns

    def feed(self, data: bytes) -> "TerminalModel":
        """Take what is written; anything unknown fails."""
        for part in _PARTS.findall(data.decode().replace("\r\n", "\n")):
            if part == "\n":
                self._go_on()
            elif part == "\r":
                self.column = 0
            elif part == "\x1b[K":
                self.rows[-1] = self.rows[-1][: self.column]
            elif part[0] != "\x1b":
                assert part.isprintable(), f"{part!r} is nothing for a terminal"
                self._show(part)
        return self

    def _go_on(self) -> None:
        self.rows.append("")
        self.column = 0

    def _show(self, character: str) -> None:
        # A full row wraps when the next character comes, not before.
        if self.column == self._columns:
            self._go_on()
        row = self.rows[-1]
        self.rows[-1] = row[: self.column] + character + row[self.column + 1 :]
        self.column += 1


class RealTerminal:
    """The master's side of a terminal."""

    def __init__(self, master: int) -> None:
        self.shown = b""
        self._master = master

    def look(self) -> bytes:
        """Add what has been written since; give all."""
        os.set_blocking(self._master, False)
        try:
            while data := os.read(self._master, 65_536):
                self.shown += data
        except BlockingIOError:
            pass
        return self.shown

    def rows(self, columns: int = 80) -> list[str]:
        """Give what a person sees."""
        return TerminalModel(columns).feed(self.look()).rows


@contextmanager
def terminal_as(replace: Callable[[str, object], None], *names: str, columns: int = 80) -> Iterator[RealTerminal]:
    """Have ``sys.stdout``, ``sys.stderr`` or both be a real terminal.

    Args:
        replace: Puts an attribute of `sys` in the place of another until the test is over.
        names: Which ones.
        columns: How wide the terminal is.
    """
    master, slave = pty.openpty()
    with os.fdopen(master, "rb", buffering=0), os.fdopen(slave, "w", encoding="utf-8") as stream:
        if columns:
            termios.tcsetwinsize(slave, (24, columns))
        for name in names:
            replace(name, stream)
        yield RealTerminal(master)
