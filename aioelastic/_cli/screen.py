"""What the launcher itself writes to the terminal, by the same hand as the ranks' lines."""

import asyncio
import contextlib
import logging
import os
import stat
import sys
import threading
from typing import Final, Literal

from aioelastic._base.defaults import DRAIN_TIMEOUT
from aioelastic._base.threads import Mailbox
from aioelastic._errors.log_tail import printable
from aioelastic._logs.consoles import Console, acquire_console
from aioelastic._logs.terminal import TerminalSanitiser

logger = logging.getLogger("aioelastic")

_NAMES: Final[tuple[Literal["stderr", "stdout"], ...]] = ("stderr", "stdout")
"""What the launcher says goes to the first one."""

_LAST_WORDS: Final = DRAIN_TIMEOUT
"""Seconds for what was said to be written, at the end, to a terminal that is slow or stopped; as for the ranks."""


class Screen:
    """The launcher's own words (a `Giver`); to be made on the loop, and closed there.

    It uses both consoles for the whole run, so that colours and status outlast the attempts. While it is there, what
    the library logs goes this way, too. Nothing here waits for the terminal, except for `close`.

    Attributes:
        terminal: Whether a person may be looking at what is said.
        colour: Whether what is said may be in colours.
        shows_status: Whether there is a status line.

    Args:
        colour: Whether there may be colours: on a terminal, unless ``NO_COLOR`` or ``TERM`` say otherwise.
        status: Whether to have a status line where the terminal has what it takes. It needs the terminal for itself:
            there must be no rank that inherits it.
    """

    def __init__(self, *, colour: bool = True, status: bool = True) -> None:
        self.mailbox = Mailbox()
        self._thread = threading.get_ident()
        self._outstanding = 0
        self._all_written = asyncio.Event()
        self._consoles = {name: console for name in _NAMES if (console := acquire_console(name)) is not None}
        self._voice = self._consoles.get(_NAMES[0])
        colour = colour and not os.environ.get("NO_COLOR") and not _is_dumb()
        self.terminal = self._voice is not None and self._voice.terminal
        self.colour = colour and self.terminal
        for console in self._consoles.values():
            console.colours = colour and console.terminal
        self._place = self._status_place() if status else None
        self._handler = _ScreenHandler(self)
        logger.addHandler(self._handler)

    @property
    def shows_status(self) -> bool:
        """Whether there is a status line."""
        return self._place is not None

    def say(self, text: str) -> None:
        """Write lines of the launcher's own, between those of the ranks; from any thread, but not in a signal handler.

        Args:
            text: The lines; the end of the last one may be left out. What is no colour, and on a pipe colours as well,
                is taken out if a terminal would act on it.
        """
        if threading.get_ident() != self._thread:
            self.mailbox.post(self.say, text)
        elif self._voice is not None and text:
            data = self._shown(text).removesuffix(b"\n") + b"\n"
            self._outstanding += self._voice.show(self, data, prefix=b"", continues=False)

    def show_status(self, text: str) -> None:
        """Show a text in the terminal's last line; ``""`` for none. Where there is no status line nothing happens."""
        if self._place is not None:
            self._place.set_status(self, self._shown(text).replace(b"\n", b" ").replace(b"\t", b" "))

    def written(self, count: int) -> None:
        """Note that so many bytes of what was said have been written."""
        self._outstanding -= count
        if self._outstanding <= 0:
            self._all_written.set()

    async def close(self) -> None:
        """Take the status away, wait for what was said to be written (with a bound), give the consoles back.

        Cancelled, it waits no longer for that.
        """
        self.show_status("")
        self._place = None
        voice, others = self._voice, [each for each in self._consoles.values() if each is not self._voice]
        async with contextlib.AsyncExitStack() as ending:
            # In the opposite order. What the others have to complain of, when they are given back, can still be said;
            # what the last one has is lost, for a broken sys.stderr would spoil the program's exit status.
            ending.callback(self._stop_listening)
            for console in self._consoles.values():
                if console is voice:
                    ending.push_async_callback(_give_back, console)
            ending.callback(self._fall_silent)
            ending.push_async_callback(self._say_last_words)
            for console in others:
                ending.push_async_callback(_give_back, console)
            self._consoles = {}

    async def _say_last_words(self) -> None:
        # What other threads have said is in the mailbox.
        await asyncio.sleep(0)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_WORDS):
                while self._outstanding > 0:
                    self._all_written.clear()
                    await self._all_written.wait()

    def _fall_silent(self) -> None:
        self._voice = None

    def _stop_listening(self) -> None:
        logger.removeHandler(self._handler)
        self._handler.close()

    def _status_place(self) -> Console | None:
        """Find the terminal that shows the status.

        None where one of the streams is a pipe: who reads that may well write to the terminal (``| tee log``).
        """
        if _is_dumb() or any(_is_pipe(name) for name in _NAMES):
            return None
        return next((console for console in self._consoles.values() if console.terminal), None)

    def _shown(self, text: str) -> bytes:
        if not self.colour:
            return printable(text).encode()
        sanitiser = TerminalSanitiser()
        data = text.replace("\r\n", "\n").replace("\r", " ").encode("utf-8", "backslashreplace")
        return sanitiser.feed(data) + sanitiser.finish()


class _ScreenHandler(logging.Handler):
    """Says what is logged."""

    def __init__(self, screen: Screen) -> None:
        super().__init__()
        self._screen = screen
        self.setFormatter(logging.Formatter("aioelastic: %(levelname)s: %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._screen.say(self.format(record))
        except Exception:  # noqa: BLE001 - a record that cannot be made text is logging's to complain of
            self.handleError(record)


async def _give_back(console: Console) -> None:
    console.colours = False
    await console.release()


def _is_dumb() -> bool:
    return os.environ.get("TERM", "") in {"", "dumb"}


def _is_pipe(name: Literal["stderr", "stdout"]) -> bool:
    try:
        mode = os.fstat(getattr(sys, name).fileno()).st_mode
    except (AttributeError, OSError, ValueError):
        return False
    return stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)
