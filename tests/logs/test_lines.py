"""From chunks to records and prefixed blocks."""

import re
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._base.defaults import LINE_LIMIT
from aioelastic._logs.lines import CUT_MARK, Cut, LineCutter, prefixed
from aioelastic._logs.terminal import TerminalSanitiser, close_colours
from tests.helpers.streams import LIMIT, STREAMS, cut, in_chunks

PREFIX = b"[trainer0]:"


def overflow(run: bytes, limit: int, *, terminal: bool) -> int:
    """Give where a run of over ``limit`` bytes is cut, by trying every unit that must stay whole."""
    for length in range(1, 4):
        lead = run[limit - length]
        follow = run[limit - length + 1 : limit]
        unfinished = 0xC2 <= lead <= 0xF4 and (2, 3, 4)[(lead >= 0xE0) + (lead >= 0xF0)] > length
        if unfinished and all(0x80 <= byte < 0xC0 for byte in follow):
            return limit - length
    if terminal:
        for colour in re.finditer(rb"\x1b\[[0-9;:]*(m|$)", run[: limit + 1]):
            if colour.start() < limit < colour.end():
                return colour.start()
    return limit


def naive(stream: bytes, *, terminal: bool, limit: int = LIMIT) -> bytes:
    """Give all records of a stream, byte by byte."""
    if terminal:
        sanitiser = TerminalSanitiser()
        stream = (sanitiser.feed(stream) + sanitiser.finish()).replace(b"\r\n", b"\n")
    output = kept = run = b""
    for index in range(len(stream)):
        byte = stream[index : index + 1]
        if byte == b"\n" or (terminal and byte == b"\r"):
            output += (run or kept) + byte
            kept = run = b""
        elif byte == b"\r":
            kept = run or kept
            run = b""
        else:
            run += byte
            if len(run) > limit:
                end = overflow(run, limit, terminal=terminal)
                output += run[:end] + CUT_MARK + b"\n"
                kept, run = b"", run[end:]
    if run or kept:
        output += (run or kept) + b"\n"
    elif terminal and output.endswith(b"\r"):
        output = output[:-1] + b"\n"
    return close_colours(output) if terminal else output


class TestRecords:
    """What `LineCutter` gives when no partial is taken."""

    @given(stream=STREAMS, terminal=st.booleans())
    def test_is_what_the_naive_definition_says(self, stream: bytes, *, terminal: bool) -> None:
        """A stream in one chunk gives what going through it byte by byte gives."""
        assert cut([stream], terminal=terminal) == naive(stream, terminal=terminal)

    @given(stream=STREAMS, terminal=st.booleans(), data=st.data())
    def test_chunks_make_no_difference(self, stream: bytes, *, terminal: bool, data: st.DataObject) -> None:
        """However the stream is divided, the records are the same."""
        whole = cut([stream], terminal=terminal)

        assert cut(in_chunks(stream, data), terminal=terminal) == whole
        assert cut((stream[at : at + 1] for at in range(len(stream))), terminal=terminal) == whole

    @given(stream=STREAMS, terminal=st.booleans(), data=st.data())
    def test_each_block_is_of_whole_records(self, stream: bytes, *, terminal: bool, data: st.DataObject) -> None:
        """A block ends with a record end; on no terminal that is always a line end, and no other is in it."""
        cutter = LineCutter(terminal=terminal, limit=LIMIT)

        blocks = [*map(cutter.feed, in_chunks(stream, data)), cutter.finish()]

        ends = (b"\n", b"\r") if terminal else (b"\n",)
        assert all(not block.data or block.data.endswith(ends) for block in blocks)
        assert terminal or not any(b"\r" in block.data for block in blocks)

    @given(stream=STREAMS, terminal=st.booleans())
    def test_no_record_is_longer_than_limit_and_mark(self, stream: bytes, *, terminal: bool) -> None:
        """The limit holds for every record, apart from the mark and the end of its colours."""
        records = re.split(rb"[\r\n]", cut([stream], terminal=terminal))

        extra = len(CUT_MARK) + terminal * len(b"\x1b[0m")
        assert max(map(len, records)) <= LIMIT + extra

    @given(stream=STREAMS.map(lambda stream: stream.replace(b"\r", b"")), data=st.data())
    def test_without_prefixes_it_is_the_input(self, stream: bytes, data: st.DataObject) -> None:
        """Without carriage returns and overlong lines, every byte is given as it came."""
        cutter = LineCutter(terminal=False)
        cuts = [*map(cutter.feed, in_chunks(stream, data)), cutter.finish()]

        shown = b"".join(prefixed(one.data, PREFIX) for one in cuts)

        ended = stream if not stream or stream.endswith(b"\n") else stream + b"\n"
        assert re.sub(rb"(?m)^" + re.escape(PREFIX), b"", shown) == ended

    @pytest.mark.parametrize(
        ("chunks", "records"),
        [
            ([b"a\nb", b"c\n"], b"a\nbc\n"),
            ([b"a\r\nb\r", b"\n"], b"a\nb\n"),
            ([b"10%\r20%\r30%\n"], b"30%\n"),
            ([b"\r10%", b"\r20%", b"\r30%\n"], b"30%\n"),
            ([b"10%\r20%\r"], b"20%\n"),
            ([b"10%\r20%\r\r\r\n"], b"20%\n"),
            ([b"\r\r\n"], b"\n"),
            ([b"\r"], b""),
            ([b"no end"], b"no end\n"),
            ([b"nul \x00 and \xff\n"], b"nul \x00 and \xff\n"),
            ([], b""),
        ],
    )
    def test_on_no_terminal(self, chunks: list[bytes], records: bytes) -> None:
        """Lines pass unchanged, and of the states of a progress bar only the last one that is not empty."""
        assert cut(chunks) == records

    @pytest.mark.parametrize(
        ("chunks", "records"),
        [
            ([b"10%\r20%\r30%\n"], b"10%\r20%\r30%\n"),
            ([b"\r10%", b"\r20%\r", b"\n"], b"\r10%\r20%\n"),
            ([b"a\r\r\n"], b"a\r\n"),
            ([b"a\r"], b"a\n"),
            ([b"\x1b[31mred\nplain\n"], b"\x1b[31mred\x1b[0m\nplain\n"),
            ([b"a\x1b[2", b"Jb\n"], b"ab\n"),
            ([b"\xff\n"], b"\\xff\n"),
        ],
    )
    def test_on_a_terminal(self, chunks: list[bytes], records: bytes) -> None:
        """States pass with their carriage return, and everything is sanitised."""
        assert cut(chunks, terminal=True) == records

    def test_a_progress_bar_takes_no_memory(self) -> None:
        """Only the last state of a bar is kept, however many there were."""
        cutter = LineCutter(terminal=False)

        given_early = [cutter.feed(b"\r%d%%" % number * 100) for number in range(1000)]

        assert not any(one.data for one in given_early)
        assert len(cutter._tail) < 1000
        assert cutter.finish() == Cut(b"999%\n", continues=False)

    def test_a_finished_cutter_takes_a_new_stream(self) -> None:
        """What is fed after the end (a gap in the buffer) has nothing of what was before."""
        cutter = LineCutter(terminal=True)
        cutter.feed(b"lost \x1b[31m\xe2")

        assert cutter.finish().data == b"lost \x1b[31m\\xe2\x1b[0m\n"
        assert cutter.feed(b"\x82 new\n").data == b"\\x82 new\n"


class TestLongLines:
    """Lines over the limit."""

    def test_pieces_are_marked_but_the_last(self) -> None:
        """Each piece has the limit's length, and each but the last the mark."""
        line = b"x" * (2 * LIMIT + 5)

        assert cut([line + b"\nnext\n"]) == ((b"x" * LIMIT + CUT_MARK + b"\n") * 2 + b"xxxxx\nnext\n")

    def test_a_line_of_the_limit_is_not_cut(self) -> None:
        """The limit itself is allowed, whatever ends the line."""
        line = b"x" * LIMIT

        assert cut([line + b"\n" + line + b"\r\n" + line]) == (line + b"\n") * 3

    def test_characters_stay_whole(self) -> None:
        """No piece ends within a UTF-8 character."""
        pieces = cut([("x" + "é" * 100 + "😀" * 50 + "你" * 50).encode()]).split(b"\n")

        assert all(piece.decode().removesuffix(CUT_MARK.decode()) for piece in pieces[:-1])

    def test_colours_stay_whole(self) -> None:
        """No piece for a terminal ends within a colour sequence or leaves its colour open."""
        pieces = cut([b"\x1b[38;5;1mz" * 100], terminal=True).split(b"\n")[:-1]

        assert all(piece.startswith(b"\x1b[38;5;1mz") and piece.endswith(b"\x1b[0m") for piece in pieces)

    @pytest.mark.parametrize("terminal", [False, True])
    @pytest.mark.parametrize("unit", [b"x", b"\xff", "é".encode(), b"\r"])
    def test_time_and_memory_are_bounded(self, unit: bytes, *, terminal: bool) -> None:
        """A line without an end costs each chunk the same."""
        cutter = LineCutter(terminal=terminal)
        chunk = unit * (LINE_LIMIT // len(unit))
        began = time.process_time()

        for _ in range(40):
            cutter.feed(chunk)

        assert len(cutter._tail) <= LINE_LIMIT + 2
        assert time.process_time() - began < 5

    def test_a_limit_that_could_not_be_kept_is_refused(self) -> None:
        """A limit below the longest colour sequence is an error."""
        with pytest.raises(ValueError, match="68 or more"):
            LineCutter(terminal=True, limit=LIMIT - 1)


class TestPrefixed:
    """Prefixes."""

    @pytest.mark.parametrize(
        ("block", "shown"),
        [
            (b"", b""),
            (b"a\n", b"P:a\n"),
            (b"a\n\nb\n", b"P:a\nP:\nP:b\n"),
            (b"10%\r20%\r\n", b"P:10%\rP:20%\rP:\n"),
        ],
    )
    def test_each_record_has_one(self, block: bytes, shown: bytes) -> None:
        """The prefix stands before each record, and nowhere else."""
        assert prefixed(block, b"P:") == shown

    def test_no_prefix(self) -> None:
        """An empty prefix changes nothing."""
        assert prefixed(b"a\nb\r", b"") == b"a\nb\r"
