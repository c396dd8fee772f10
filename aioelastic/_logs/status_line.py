"""The last line of a terminal, kept for a status that stays below the log."""

import functools
import os
import re
from collections.abc import Sequence
from typing import Final

from aioelastic._logs.outlets import Sink

_ERASE: Final = b"\r\x1b[K"

_RESET: Final = b"\x1b[0m"

_COLOUR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")

_MARGIN: Final = 3
"""Columns left free: for the ``^C`` that a terminal echoes behind the status, and because the last one may wrap."""

_USUAL_COLUMNS: Final = 80
"""The width of a terminal that does not tell its own."""


class StatusLine:
    """A terminal's sink, with a line below all that is written (`Sink`).

    Only here, where it is written, is it known what has been: output that is taken back before, or comes several pieces
    at a time, is no matter. Each write erases the status, and draws it again after the output unless that leaves a line
    open. The status is cut so that it never wraps. When the terminal becomes narrower, it may itself wrap what was
    drawn: then a piece of that stays, for going up a line could erase one of the log.

    While the program is in the background the terminal's last line is the shell's, and is left alone.

    Args:
        sink: What is written to (owned).
        descriptor: The terminal, which the sink owns.
    """

    def __init__(self, sink: Sink, descriptor: int) -> None:
        self.name = sink.name
        self._sink = sink
        self._descriptor = descriptor
        self._text = b""
        self._drawn = b""
        self._asked = False
        self._line_is_open = False

    def change(self, text: bytes) -> bool:
        """Take another text; tell whether an (empty) write has to be asked for, or one that will show it is due."""
        if text == self._text:
            return False
        # In this order, and `write` in the other one: whatever happens between them, no text is left undrawn.
        self._text = text
        asked, self._asked = self._asked, True
        return not asked

    def forget(self) -> None:
        """Have no text any more; the next write, or the end, erases what is drawn."""
        self._text = b""
        self._asked = False

    def write(self, pieces: Sequence[bytes]) -> None:
        """Write above the status; without any output, draw the status."""
        self._asked = False
        pieces = [piece for piece in pieces if piece]
        if pieces:
            self._line_is_open = not pieces[-1].endswith(b"\n")
        if self._text or self._drawn:
            self._write_above(pieces)
        elif pieces:
            self._sink.write(pieces)

    def close(self) -> None:
        """Erase the status, and close the sink."""
        try:
            self.forget()
            self.write(())
        finally:
            self._sink.close()

    def _write_above(self, pieces: list[bytes]) -> None:
        foreground = _in_foreground(self._descriptor)
        line = self._line() if foreground and not self._line_is_open else b""
        if not pieces and line == self._drawn:
            return
        erase = _ERASE if self._drawn and foreground else b""
        # Where a write fails it is not known what there is; and it was the last one.
        self._drawn = b""
        if whole := [piece for piece in (erase, *pieces, line) if piece]:
            try:
                self._sink.write(whole)
            except OSError as error:
                written = getattr(error, "characters_written", 0) - len(erase)
                written = min(max(written, 0), sum(map(len, pieces)))
                error.characters_written = written  # type: ignore[attr-defined]  # typeshed knows it of a subclass only
                raise
        self._drawn = line

    def _line(self) -> bytes:
        try:
            columns = os.get_terminal_size(self._descriptor).columns
        except OSError:
            columns = 0
        return fitted(self._text, (columns or _USUAL_COLUMNS) - _MARGIN)


@functools.lru_cache(maxsize=2)
def fitted(text: bytes, columns: int) -> bytes:
    """Cut a text of one line, which may have colours, so that it fits into some columns of a terminal.

    What is no ASCII counts as two columns: some of it takes two, and tables of that differ between terminals.

    Args:
        text: The text, in UTF-8, without any controls but colours.
        columns: How many there are, 0 or less for none.

    Returns:
        The text, or its beginning; colours that were left open are closed.
    """
    shown = []
    for index, part in enumerate(_COLOUR.split(text.decode("utf-8", "replace"))):
        if index % 2:
            shown.append(part)
            continue
        for character in part:
            columns -= 1 if character.isascii() else 2
            if columns < 0:
                break
            shown.append(character)
    line = "".join(shown).encode()
    return line + _RESET if b"\x1b" in line and not line.endswith(_RESET) else line


def _in_foreground(terminal: int) -> bool:
    """Tell whether the terminal is this program's to draw on; any that it is not controlled by is."""
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return True
