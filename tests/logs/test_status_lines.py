"""A status below the log, on a terminal's last line, and what it must never do to the log."""

import asyncio
import os
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic import Std
from aioelastic._base.threads import Mailbox
from aioelastic._logs.consoles import Console, acquire_console
from aioelastic._logs.copies import coloured
from aioelastic._logs.lines import prefixed
from aioelastic._logs.status_line import StatusLine, fitted
from tests.helpers.supervisors import run_shells
from tests.helpers.terminals import TerminalModel, terminal_as
from tests.helpers.waiting import until

COLUMNS = 24
"""A narrow terminal, so that lines of the log wrap and the status is cut."""

STATUS = "3 of 4 up · 12 s"


class Giver:
    """Somebody who writes, and never asks how far that has come."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()

    def written(self, count: int) -> None:
        """Be told."""


class Memory:
    """A sink that keeps all writes."""

    name = "memory"

    def __init__(self) -> None:
        self.writes: list[bytes] = []

    def write(self, pieces: Sequence[bytes]) -> None:
        """Keep."""
        self.writes.append(b"".join(pieces))

    def close(self) -> None:
        """Keep on."""


@pytest.fixture
def sink() -> Memory:
    """Give a sink to put a status line on."""
    return Memory()


@pytest.fixture
def line(sink: Memory, monkeypatch: pytest.MonkeyPatch) -> StatusLine:
    """Give a status line on it, 24 columns wide and in the foreground."""
    monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((COLUMNS, 24)))
    return StatusLine(sink, -1)


class TestWrites:
    """What one write of a status line is made of."""

    def test_it_is_erased_before_output_and_drawn_after_it_in_the_same_write(
        self, line: StatusLine, sink: Memory
    ) -> None:
        """The terminal gets erasing, all output of the turn and the status at once."""
        assert line.change(b"up")
        line.write([b""])
        line.write([b"a\n", b"b\n"])

        assert sink.writes == [b"up", b"\r\x1b[Ka\nb\nup"]

    def test_without_a_status_writes_pass_as_they_are(self, line: StatusLine, sink: Memory) -> None:
        """Before the first status, and after it is gone, the pieces are all that is written."""
        line.write([b"a\n"])
        line.change(b"up")
        line.write([b"b\n"])
        line.change(b"")
        line.write([])
        line.write([b"c\n"])

        assert sink.writes == [b"a\n", b"b\nup", b"\r\x1b[K", b"c\n"]

    @pytest.mark.parametrize("open_line", [b"name? ", b"50%\r"])
    def test_it_is_hidden_while_a_line_is_open(self, open_line: bytes, line: StatusLine, sink: Memory) -> None:
        """A prompt, and each state of a progress bar, has the terminal's last line for itself until it is ended."""
        line.change(b"up")
        line.write([open_line])
        line.change(b"down")
        line.write([b""])
        line.write([b"Ada\n"])

        assert sink.writes == [open_line, b"Ada\ndown"]

    def test_one_request_is_enough_for_many_texts(self, line: StatusLine, sink: Memory) -> None:
        """However often the text changes before anybody writes, one empty write is asked for; the last text counts."""
        asked = [line.change(b"%d" % number) for number in range(3)]
        line.write([b""])
        again = line.change(b"2"), line.change(b"3")

        assert (asked, again) == ([True, False, False], (False, True))
        assert sink.writes == [b"2"]

    def test_in_the_background_the_last_line_is_the_shells(
        self, line: StatusLine, sink: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """A program that was put in the background writes its output, and neither draws nor erases."""
        line.change(b"up")
        line.write([b""])
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
        line.change(b"down")
        line.write([b""])
        line.write([b"a\n"])
        monkeypatch.undo()
        line.write([b"b\n"])

        assert sink.writes == [b"up", b"a\n", b"b\ndown"]

    def test_a_failure_counts_output_only(
        self, line: StatusLine, sink: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Of a write that fails half-way the erasing is not counted as output that came through."""
        line.change(b"up")
        line.write([b""])

        def fail(pieces: Sequence[bytes]) -> None:
            error = OSError(5, "gone")
            error.characters_written = sum(map(len, pieces)) - 4  # type: ignore[attr-defined]
            raise error

        monkeypatch.setattr(sink, "write", fail)
        with pytest.raises(OSError, match="gone") as caught:
            line.write([b"abc\n"])

        assert caught.value.characters_written == 2  # type: ignore[attr-defined]


class TestWidths:
    """Cutting to a width."""

    @pytest.mark.parametrize(
        ("text", "columns", "shown"),
        [
            ("abc", 3, "abc"),
            ("abcd", 3, "abc"),
            ("a·b", 3, "a·"),
            ("你好", 3, "你"),
            ("abc", 0, ""),
            ("abc", -5, ""),
            ("\x1b[31mabc\x1b[0md", 2, "\x1b[31mab\x1b[0m"),
            ("\x1b[31mabc", 9, "\x1b[31mabc\x1b[0m"),
        ],
    )
    def test_a_text_is_cut(self, text: str, columns: int, shown: str) -> None:
        """No more is shown than surely fits; colours take no room, and none is left open."""
        assert fitted(text.encode(), columns).decode() == shown

    @pytest.mark.parametrize("columns", [1, 2, 3, 4, 10, 80])
    def test_it_never_wraps(
        self, columns: int, line: StatusLine, sink: Memory, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """However narrow the terminal is, and whenever it became so, the log below and above stays whole."""
        monkeypatch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((columns, 24)))
        line.change(b"x" * 200)
        line.write([b"a\n"])
        line.write([b"b\n"])
        line.close()

        assert TerminalModel(columns).feed(b"".join(sink.writes)).rows == ["a", "b", ""]


RECORDS = st.sampled_from([b"short\n", b"12%\r", b"name? ", b"x" * COLUMNS + b"\n", b"two\nlines\n", b"y" * 60 + b"\n"])
"""What ranks write: whole lines, some that fill the terminal's width or wrap, bars, prompts."""

Action = tuple[str, int, bytes, bool]

ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("show"), st.integers(0, 2), RECORDS, st.booleans()),
        st.tuples(st.just("leave"), st.integers(0, 2), st.just(b""), st.just(False)),
        st.tuples(st.just("status"), st.just(0), st.sampled_from([b"", b"up", STATUS.encode() * 3]), st.just(False)),
        st.tuples(st.just("pause"), st.just(0), st.just(b""), st.just(False)),
    ),
    max_size=15,
)


class Transcript(NamedTuple):
    """What a terminal shows when all actions are done, and when the console has been released."""

    before: list[str]
    after: list[str]


async def transcripts(actions: list[Action]) -> list[Transcript]:
    """Do to a console what the actions say, without and with those about the status."""
    return [await transcript(actions, statuses=statuses) for statuses in (False, True)]


async def transcript(actions: list[Action], *, statuses: bool) -> Transcript:
    """Do to a console what the actions say."""
    sink = Memory()
    console = Console("memory", StatusLine(sink, -1), [], terminal=True)
    console.users = 1
    givers = [Giver(), Giver(), Giver()]
    for action, who, data, continues in actions:
        prefix = b"\x1b[3%dm[r%d]:\x1b[0m" % (who + 1, who)
        if action == "show":
            console.show(givers[who], prefixed(data, prefix) or prefix, prefix=prefix, continues=continues)
        elif action == "leave":
            console.leave(givers[who])
        elif action == "status" and statuses:
            console.set_status(givers[who], data)
        elif action == "pause":
            await asyncio.sleep(0.0005)
    while console._outlet._writing:
        await asyncio.sleep(0)
    before = TerminalModel(COLUMNS).feed(b"".join(sink.writes)).rows
    await console.release()
    return Transcript(before, TerminalModel(COLUMNS).feed(b"".join(sink.writes)).rows)


@given(actions=ACTIONS)
def test_the_log_is_the_same_with_a_status(actions: list[Action]) -> None:
    """Whatever ranks show and leave open, a terminal has the log it has without a status, and the status below it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "get_terminal_size", lambda _: os.terminal_size((COLUMNS, 24)))
        plain, watched = asyncio.run(transcripts(actions))

    status = [data for action, _, data, _ in actions if action == "status"][-1:]
    if plain.before[-1] == "" and status:
        assert watched.before == [*plain.before[:-1], fitted(status[0], COLUMNS - 3).decode()]
    else:
        assert watched.before == plain.before
    assert watched.after == plain.after


async def test_a_real_terminal_shows_lines_in_colours_above_the_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rank's prefix has a colour there, files and filtered copies have none, and on release the status goes."""
    with terminal_as(partial(monkeypatch.setattr, sys), "stdout", columns=30) as terminal:
        console = acquire_console("stdout")
        assert console is not None
        console.colours = True
        console.set_status(Giver(), b"x" * 100)
        script = "echo one; printf '50%%\\r'; sleep 0.3; printf '100%%\\nend'"
        await run_shells(
            script,
            "echo one",
            log_dir=tmp_path,
            tee=Std.OUT,
            duplicate_stdout_filters=["one"],
            log_line_prefixes={1: ""},
        )
        await until(lambda: terminal.rows(30)[-1] == "x" * 27, "the status")
        rows = terminal.rows(30)[:-1]
        await console.release()

        assert sorted(rows) == ["[job0]:100%", "[job0]:end", "[job0]:one", "one"]
        assert terminal.rows(30) == [*rows, ""]
    assert b"\x1b[36m[job0]:\x1b[0mone\r\n" in terminal.shown
    (copy,) = tmp_path.rglob("filtered_stdout.log")
    assert sorted(copy.read_text().splitlines()) == ["[job0]:one", "one"]


@pytest.mark.parametrize("columns", [0, 5])
async def test_a_terminal_that_tells_no_width_has_the_usual_one(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the width is unknown the status takes 80 columns at most; on a very narrow terminal its beginning shows."""
    with terminal_as(partial(monkeypatch.setattr, sys), "stdout", columns=columns) as terminal:
        console = acquire_console("stdout")
        assert console is not None
        console.set_status(Giver(), b"x" * 100)
        await until(terminal.look, "the status")
        await console.release()
        shown = terminal.look()

    assert shown == b"x" * (77 if columns == 0 else 2) + b"\r\x1b[K"


def test_a_ranks_colour_leaves_prefixes_that_have_their_own() -> None:
    """A prefix that is empty, or coloured by the user, stays as it is; ranks take turns at eight colours."""
    prefixes = [coloured(b"p", rank) for rank in range(9)]

    assert coloured(b"", 1) == b""
    assert coloured(b"\x1b[1mp\x1b[0m", 1) == b"\x1b[1mp\x1b[0m"
    assert len(set(prefixes)) == 8
    assert prefixes[8] == prefixes[0] == b"\x1b[36mp\x1b[0m"
