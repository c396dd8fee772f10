"""Lines that are shown before they end."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._logs.lines import CUT_MARK, Cut, LineCutter
from tests.helpers.streams import LIMIT, STREAMS, cut, in_chunks


class TestPartials:
    """Lines that are shown before they end."""

    def test_the_rest_continues(self) -> None:
        """A prompt is handed out once, and the rest of its line comes as a continuation."""
        cutter = LineCutter(terminal=False)
        assert cutter.feed(b"done\nname? ") == Cut(b"done\n", continues=False)
        assert cutter.partial == b"name? "

        assert cutter.take_partial() == Cut(b"name? ", continues=False)

        assert cutter.partial == b""
        assert cutter.feed(b"Jo") == Cut(b"", continues=False)
        assert cutter.take_partial() == Cut(b"Jo", continues=True)
        assert cutter.feed(b"\nnext\n") == Cut(b"\nnext\n", continues=True)
        assert cutter.feed(b"new\n") == Cut(b"new\n", continues=False)

    @pytest.mark.parametrize("terminal", [False, True])
    def test_the_end_of_the_stream_ends_it(self, *, terminal: bool) -> None:
        """A shown line without an end gets one at the end of the stream."""
        cutter = LineCutter(terminal=terminal)
        cutter.feed(b"name? ")
        cutter.take_partial()

        assert cutter.finish() == Cut(b"\n", continues=True)
        assert cutter.finish() == Cut(b"", continues=False)

    @pytest.mark.parametrize("tail", [b"10%\r", b"\r10%", b"10%\r20%", b"\r"])
    def test_a_progress_bar_is_not_offered(self, tail: bytes) -> None:
        """On no terminal a pending tail with a carriage return waits for the line's end."""
        cutter = LineCutter(terminal=False)
        cutter.feed(tail)

        assert cutter.partial == b""

    @pytest.mark.parametrize(
        ("chunks", "shown"),
        [
            ([b"\r20%", b"\r30%\n"], b"\n30%\n"),
            ([b"x\r20%", b"\r", b"\n"], b"\n20%\n"),
            ([b"x\r20%\r", b"\r\n"], b"\n20%\n"),
            ([b"\r", b"\n"], b"\n"),
            ([b"\r\r\r", b"\n"], b"\n"),
            ([b"x\r\r", b"\n"], b"x\n"),
            ([b"x\r\n"], b"x\n"),
            ([b"\r20%\nnext\r\n"], b"\n20%\nnext\n"),
        ],
    )
    def test_a_bar_after_a_shown_beginning(self, chunks: list[bytes], shown: bytes) -> None:
        """On no terminal the shown line is closed, and a last state newer than it is a record of its own."""
        cutter = LineCutter(terminal=False)
        cutter.feed(b"10%")
        cutter.take_partial()

        cuts = [one for one in map(cutter.feed, chunks) if one.data]

        assert cuts == [Cut(shown, continues=True)]

    def test_a_bar_after_a_shown_beginning_may_end_the_stream(self) -> None:
        """The last state comes at the end of the stream too."""
        cutter = LineCutter(terminal=False)
        cutter.feed(b"10%")
        cutter.take_partial()
        cutter.feed(b"\r20%")

        assert cutter.finish() == Cut(b"\n20%\n", continues=True)

    def test_a_bar_on_a_terminal_is_offered_state_by_state(self) -> None:
        """On a terminal each state shows after a silence, whichever side its carriage return is on."""
        cutter = LineCutter(terminal=True)
        cutter.feed(b"\r10%")
        assert cutter.take_partial() == Cut(b"10%", continues=False)

        assert cutter.feed(b"\r20%\r") == Cut(b"\r", continues=True)
        assert cutter.take_partial() == Cut(b"20%", continues=False)
        assert cutter.feed(b"\n") == Cut(b"\n", continues=True)

    @pytest.mark.parametrize("terminal", [False, True])
    def test_an_unfinished_character_is_kept_back(self, *, terminal: bool) -> None:
        """A partial ends with a whole character."""
        cutter = LineCutter(terminal=terminal)
        cutter.feed("naé".encode()[:-1])

        assert cutter.take_partial().data == b"na"
        assert cutter.feed(b"\xa9\n").data == "é\n".encode()

    def test_sequences_do_not_leak(self) -> None:
        """A partial for a terminal has whole colours only, closed, and nothing of other sequences."""
        cutter = LineCutter(terminal=True)
        cutter.feed(b"\x1b[31mname? \x1b[2")

        assert cutter.partial == b"\x1b[31mname? \x1b[0m"
        assert cutter.take_partial().data == b"\x1b[31mname? \x1b[0m"
        assert cutter.feed(b"Jx\n") == Cut(b"x\n", continues=True)

    def test_what_is_shown_counts_for_the_limit(self) -> None:
        """A line that is shown in parts is cut where it would be otherwise."""
        cutter = LineCutter(terminal=False, limit=LIMIT)
        cutter.feed(b"x" * LIMIT)
        cutter.take_partial()

        assert cutter.feed(b"y" * (LIMIT + 1)) == Cut(
            CUT_MARK + b"\n" + b"y" * LIMIT + CUT_MARK + b"\n", continues=True
        )
        assert cutter.finish() == Cut(b"y\n", continues=False)

    @given(stream=STREAMS.map(lambda stream: stream.replace(b"\r", b"")), data=st.data())
    def test_partials_change_no_line(self, stream: bytes, data: st.DataObject) -> None:
        """Without carriage returns, what is shown is the same with partials as without."""
        cutter = LineCutter(terminal=False, limit=LIMIT)
        shown = b""
        for chunk in in_chunks(stream, data):
            shown += cutter.feed(chunk).data
            if data.draw(st.booleans()):
                shown += cutter.take_partial().data

        shown += cutter.finish().data

        if max(map(len, stream.split(b"\n"))) <= LIMIT:
            assert shown == cut([stream])
        assert shown.replace(CUT_MARK + b"\n", b"").removesuffix(b"\n") == stream.removesuffix(b"\n")
