"""The launcher's own words, on terminals and pipes."""

import asyncio
import io
import logging
import os
import sys
import threading
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path

import pytest

from aioelastic import Std
from aioelastic._cli import screen as screen_module
from aioelastic._cli.screen import Screen
from aioelastic._logs.consoles import acquire_console
from tests.helpers.supervisors import run_shells
from tests.helpers.terminals import RealTerminal, terminal_as
from tests.helpers.waiting import until

COLOURED = "\x1b[31mred\x1b[0m\x1b[2J"
"""A colour, and an escape sequence that is none."""


@pytest.fixture(autouse=True)
def kind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Say that terminals are of a usual kind."""
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("NO_COLOR", raising=False)


def on_terminal(monkeypatch: pytest.MonkeyPatch) -> AbstractContextManager[RealTerminal]:
    """Have stdout and stderr be one real terminal; not in a fixture, for pytest puts its own in there afterwards."""
    return terminal_as(partial(monkeypatch.setattr, sys), "stdout", "stderr")


class TestPipes:
    """Where nobody may be looking."""

    async def test_lines_are_plain_and_go_to_stderr(self, capfd: pytest.CaptureFixture[str]) -> None:
        """A pipe gets whole lines without any escape sequence, and no status, even if colours were asked for."""
        screen = Screen(colour=True)
        screen.show_status("status")
        screen.say(f"one\n{COLOURED}")
        screen.say("")
        await screen.close()

        assert capfd.readouterr() == ("", "one\nred\n")
        assert (screen.terminal, screen.colour, screen.shows_status) == (False, False, False)

    async def test_what_the_library_logs_is_said_once(self, capfd: pytest.CaptureFixture[str]) -> None:
        """While the screen is there warnings of the library, from any thread, are lines of its own; then no longer."""
        logger = logging.getLogger("aioelastic")
        before = list(logger.handlers), list(logging.getLogger().handlers)
        screen = Screen()
        logger.warning("from the %s", "loop")
        thread = threading.Thread(target=logger.warning, args=("from a thread",))
        thread.start()
        thread.join()
        await screen.close()

        assert capfd.readouterr().err == "aioelastic: WARNING: from the loop\naioelastic: WARNING: from a thread\n"
        assert (list(logger.handlers), list(logging.getLogger().handlers)) == before

    async def test_a_record_that_is_no_text_ends_nothing(self, capfd: pytest.CaptureFixture[str]) -> None:
        """Of a record whose arguments do not fit logging complains itself, and the launcher goes on."""
        screen = Screen()
        screen._handler.emit(logging.LogRecord("aioelastic", logging.WARNING, "", 0, "%d", ("one",), None))
        screen.say("after it")
        await screen.close()

        assert capfd.readouterr().err.endswith("after it\n")

    async def test_a_cancelled_end_gives_everything_back(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Cancelled while it waits for a terminal that is stopped, it goes at once, and both consoles are free."""
        with on_terminal(monkeypatch) as terminal:
            screen = Screen()
            screen.say("line\n" * 10_000)
            closing = asyncio.create_task(screen.close())
            for _ in range(3):
                await asyncio.sleep(0)
            closing.cancel()
            with pytest.raises(asyncio.CancelledError):
                await closing
            screen.say("nobody hears this")

            await until(lambda: terminal.look() and _is_free(), "the terminal's thread to end")

    async def test_without_streams_it_says_nothing(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A program without stdout and stderr (a daemon) is no reason to fail."""
        monkeypatch.setattr(sys, "stdout", None)
        monkeypatch.setattr(sys, "stderr", None)
        screen = Screen()
        screen.say("one")
        screen.show_status("status")
        await screen.close()
        screen.say("after its end")


class TestTerminals:
    """Where a person may be looking."""

    async def test_lines_of_all_stand_above_the_status(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Lines of ranks, in colours over two groups, and of the launcher are whole; the status is the last line."""
        with on_terminal(monkeypatch) as terminal:
            screen = Screen()
            screen.show_status("one\ttwo\nthree")
            await run_shells("echo a", log_dir=tmp_path, tee=Std.ALL)
            screen.say(COLOURED)
            await run_shells("echo b >&2", log_dir=tmp_path, tee=Std.ALL)

            await until(lambda: len(terminal.rows()) == 4)
            assert terminal.rows() == ["[job0]:a", "red", "[job0]:b", "one two three"]
            for part in (b"\x1b[36m[job0]:\x1b[0ma", b"\x1b[31mred\x1b[0m", b"\x1b[36m[job0]:\x1b[0mb"):
                assert part in terminal.shown
            await screen.close()
            assert terminal.rows() == ["[job0]:a", "red", "[job0]:b", ""]

    @pytest.mark.parametrize("case", ["False", "NO_COLOR", "dumb"])
    async def test_without_colours(self, case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Asked for none, or with NO_COLOR, there is still a status line; a terminal that can do nothing has none."""
        if case == "NO_COLOR":
            monkeypatch.setenv("NO_COLOR", "1")
        elif case == "dumb":
            monkeypatch.setenv("TERM", "dumb")
        with on_terminal(monkeypatch) as terminal:
            screen = Screen(colour=case != "False")
            screen.show_status("status")
            shows_status = screen.shows_status
            await run_shells("echo a", log_dir=tmp_path, tee=Std.OUT)
            screen.say(COLOURED)
            await screen.close()

            text = terminal.look().decode().replace("\r\n", "\n")
        assert text.replace("\r\x1b[K", "").replace("status", "") == "[job0]:a\nred\n"
        assert ("status" in text) == shows_status == (case != "dumb")

    async def test_no_status_where_something_else_writes(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """With stdout in a pipe, whose reader may write to the terminal, or with ranks that do, there is no status."""
        reading, writing = os.pipe()
        with (
            terminal_as(partial(monkeypatch.setattr, sys), "stderr"),
            os.fdopen(reading),
            os.fdopen(writing, "w") as pipe,
            io.TextIOWrapper(io.BytesIO()) as file,
        ):
            for stream, status in ((pipe, True), (file, False), (file, True)):
                monkeypatch.setattr(sys, "stdout", stream)
                screen = Screen(status=status)
                shows = screen.shows_status
                await screen.close()

                assert shows == (stream is file and status)

    async def test_a_terminal_that_is_stopped_delays_the_end_by_a_bound(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Of a terminal that takes nothing any more the end waits as long as agreed, no longer."""
        monkeypatch.setattr(screen_module, "_LAST_WORDS", 0.1)
        with on_terminal(monkeypatch) as terminal:
            screen = Screen()
            screen.say("line\n" * 10_000)
            async with asyncio.timeout(5):
                await screen.close()

            await until(lambda: terminal.look() and _is_free(), "the terminal's thread to end")

    async def test_colours_end_with_the_screen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Who uses the console after the launcher finds it as it was."""
        with on_terminal(monkeypatch):
            console = acquire_console("stderr")
            assert console is not None
            screen = Screen(colour=True)
            during = console.colours
            await screen.close()

            assert (during, console.colours) == (True, False)
            await console.release()


def _is_free() -> bool:
    return not any(thread.name.startswith("aioelastic: the console") for thread in threading.enumerate())
