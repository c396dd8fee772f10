"""Partial lines, progress bars and control characters, on pipes and on terminals."""

import contextlib
import os
import pty
import subprocess
from pathlib import Path

import pytest

from aioelastic import Std, start_processes
from tests.helpers.programs import shells
from tests.helpers.supervisors import run_shells, supervisor
from tests.helpers.waiting import until


def on_terminal(script: str, folder: Path) -> bytes:
    """Give what a terminal gets of a teed script."""
    body = f"""
        async with start_processes("job", "sh", {shells(script)}, log_dir="{folder}", tee=Std.ALL) as context:
            await context.wait()
    """
    ours, theirs = pty.openpty()
    shown = b""
    with (
        os.fdopen(ours, "rb", buffering=0) as terminal,
        subprocess.Popen(supervisor(body), stdout=theirs, stderr=theirs),
        contextlib.suppress(OSError),  # EIO: the last one that had it open has gone
    ):
        os.close(theirs)
        while True:
            shown += terminal.read(65536) or b""
    return shown.replace(b"\r\n", b"\n")


class Screen:
    """What capfd has shown so far."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self.text = ""
        self._capture = capture

    def look(self) -> str:
        """Add what has come since."""
        self.text += self._capture.readouterr().out
        return self.text


async def test_a_prompt_is_shown_and_continued(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A lone partial line shows after a silence while its rank goes on, and its rest follows without a prefix."""
    screen = Screen(capfd)
    script = f"printf 'name? '; while ! test -e {tmp_path}/go; do sleep 0.01; done; echo Ada; echo next"
    async with start_processes("job", "sh", shells(script), log_dir=tmp_path, tee=Std.OUT) as context:
        await until(lambda: screen.look() == "[job0]:name? ", "the prompt")
        (tmp_path / "go").touch()
        await context.wait()

    assert screen.look() == "[job0]:name? Ada\n[job0]:next\n"


async def test_an_interrupted_prompt_is_ended_first(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A line of another rank never continues somebody's partial line: that is ended, and goes on with its prefix."""
    screen = Screen(capfd)
    asks = f"printf 'name? '; while ! test -e {tmp_path}/go2; do sleep 0.01; done; echo Ada"
    other = f"while ! test -e {tmp_path}/go1; do sleep 0.01; done; echo other; touch {tmp_path}/said"
    async with start_processes("job", "sh", shells(asks, other), log_dir=tmp_path, tee=Std.OUT) as context:
        await until(lambda: screen.look() == "[job0]:name? ", "the prompt")
        (tmp_path / "go1").touch()
        await until(lambda: "other\n" in screen.look(), "the other line")
        (tmp_path / "go2").touch()
        await context.wait()

    assert screen.look() == "[job0]:name? \n[job1]:other\n[job0]:Ada\n"


async def test_a_short_pause_does_not_break_a_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A line that comes in pieces close together is shown as one record, behind one prefix."""
    await run_shells("for n in 1 2 3 4 5; do printf $n; sleep 0.02; done; echo", log_dir=tmp_path, tee=Std.OUT)

    assert capfd.readouterr().out == "[job0]:12345\n"


async def test_a_last_line_without_an_end_is_ended(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What a rank leaves without an end is shown, and ended, so that nothing runs into it."""
    result = await run_shells("printf a", "printf b", log_dir=tmp_path, tee=Std.OUT)

    assert sorted(capfd.readouterr().out.splitlines(keepends=True)) == ["[job0]:a\n", "[job1]:b\n"]
    assert Path(result.stdouts[0]).read_text() == "a"


async def test_off_a_terminal_a_bar_leaves_its_last_state(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    r"""Of a ``\r`` progress bar a pipe gets the last state only, once its line ends; the file has all."""
    result = await run_shells(
        "printf '1%%\\r50%%\\r100%%\\r\\n'; printf 'dos\\r\\nbar 1\\rbar 2'", log_dir=tmp_path, tee=Std.OUT
    )

    assert capfd.readouterr().out == "[job0]:100%\n[job0]:dos\n[job0]:bar 2\n"
    assert Path(result.stdouts[0]).read_bytes() == b"1%\r50%\r100%\r\ndos\r\nbar 1\rbar 2"


def test_on_a_terminal_a_bar_moves(tmp_path: Path) -> None:
    r"""A terminal gets each state of a ``\r`` progress bar, behind the prefix."""
    shown = on_terminal("printf '1%%\\r50%%\\r100%%\\n'", tmp_path)

    assert shown == b"[job0]:1%\r[job0]:50%\r[job0]:100%\n"


def test_a_terminal_gets_no_control_characters(tmp_path: Path) -> None:
    """Titles, cursor movements, bells and NULs are not passed to a terminal; tabs and colours are; the file has all."""
    raw = b"a\tb\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b[2Jc\x07\x00d\x08 \xff e\n"
    octal = "".join(f"\\{byte:03o}" for byte in raw)

    shown = on_terminal(f"printf '{octal}'", tmp_path)

    assert shown == b"[job0]:a\tb\x1b[31mred\x1b[0m cd \\xff e\n"
    (file,) = tmp_path.rglob("stdout.log")
    assert file.read_bytes() == raw


async def test_a_pipe_gets_them_as_they_are(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Off a terminal nobody looks: escapes pass as they were written."""
    await run_shells("printf '\\033[31mred\\033[2J\\n'", log_dir=tmp_path, tee=Std.OUT)

    assert capfd.readouterr().out == "[job0]:\x1b[31mred\x1b[2J\n"


def test_a_terminal_shows_a_prompt(tmp_path: Path) -> None:
    """On a terminal, too, a partial line is shown, and continued without a second prefix."""
    shown = on_terminal("printf 'name? '; sleep 0.5; echo Ada", tmp_path)

    assert shown == b"[job0]:name? Ada\n"
