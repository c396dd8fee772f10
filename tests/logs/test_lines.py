"""From chunks to records, prefixed blocks and filtered lines."""

import re
import time
from collections.abc import Iterable, Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._base.defaults import LINE_LIMIT
from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._logs.lines import (
    CUT_MARK,
    Cut,
    FilterEntry,
    LineCutter,
    LineFilter,
    check_filters,
    prefixed,
)
from aioelastic._logs.terminal import TerminalSanitiser, close_colours

LIMIT = 68
"""The smallest limit, so that short examples reach it."""

PREFIX = b"[trainer0]:"


def cut(chunks: Iterable[bytes], *, terminal: bool = False, limit: int = LIMIT) -> bytes:
    """Give all records of a stream that comes in these chunks."""
    cutter = LineCutter(terminal=terminal, limit=limit)
    cuts = [*map(cutter.feed, chunks), cutter.finish()]

    assert not any(one.continues for one in cuts)
    return b"".join(one.data for one in cuts)


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


bits = st.sampled_from(
    [
        *(
            b"\n",
            b"\r",
            b"\r\n",
            b"x",
            b"10%",
            b"error",
            b"x" * 33,
            b"x" * LIMIT,
            b"x" * (LIMIT + 1),
            b"y" * 200,
        ),
        *(
            "é".encode(),
            "é".encode() * 40,
            "😀".encode() * 20,
            "你".encode() * 50,
            b"\xf0\x9f",
            b"\x80",
            b"\xff" * 30,
        ),
        *(b"\x00", b"\x1b", b"\x1b[31m", b"\x1b[1;38;2;10;20;30m", b"\x1b[0m", b"\x1b[31mz" * 30, b"\x1b[K"),
    ]
)
streams = st.lists(bits | st.binary(max_size=6), max_size=16).map(b"".join)
lines = st.lists(
    st.sampled_from([b"\n", b"\n", b"ab", b"a", b"error", b"]:", b":", b"\xff", "é".encode(), b"\xe2", b"\x00"]),
    max_size=20,
).map(lambda parts: b"".join((*parts, b"\n")))


def in_chunks(stream: bytes, data: st.DataObject) -> list[bytes]:
    """Divide a stream at places of hypothesis' choice."""
    bounds = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8))), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]


class TestRecords:
    """What `LineCutter` gives when no partial is taken."""

    @given(stream=streams, terminal=st.booleans())
    def test_is_what_the_naive_definition_says(self, stream: bytes, *, terminal: bool) -> None:
        """A stream in one chunk gives what going through it byte by byte gives."""
        assert cut([stream], terminal=terminal) == naive(stream, terminal=terminal)

    @given(stream=streams, terminal=st.booleans(), data=st.data())
    def test_chunks_make_no_difference(self, stream: bytes, *, terminal: bool, data: st.DataObject) -> None:
        """However the stream is divided, the records are the same."""
        whole = cut([stream], terminal=terminal)

        assert cut(in_chunks(stream, data), terminal=terminal) == whole
        assert cut((stream[at : at + 1] for at in range(len(stream))), terminal=terminal) == whole

    @given(stream=streams, terminal=st.booleans(), data=st.data())
    def test_each_block_is_of_whole_records(self, stream: bytes, *, terminal: bool, data: st.DataObject) -> None:
        """A block ends with a record end; on no terminal that is always a line end, and no other is in it."""
        cutter = LineCutter(terminal=terminal, limit=LIMIT)

        blocks = [*map(cutter.feed, in_chunks(stream, data)), cutter.finish()]

        ends = (b"\n", b"\r") if terminal else (b"\n",)
        assert all(not block.data or block.data.endswith(ends) for block in blocks)
        assert terminal or not any(b"\r" in block.data for block in blocks)

    @given(stream=streams, terminal=st.booleans())
    def test_no_record_is_longer_than_limit_and_mark(self, stream: bytes, *, terminal: bool) -> None:
        """The limit holds for every record, apart from the mark and the end of its colours."""
        records = re.split(rb"[\r\n]", cut([stream], terminal=terminal))

        extra = len(CUT_MARK) + terminal * len(b"\x1b[0m")
        assert max(map(len, records)) <= LIMIT + extra

    @given(stream=streams.map(lambda stream: stream.replace(b"\r", b"")), data=st.data())
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

    @given(stream=streams.map(lambda stream: stream.replace(b"\r", b"")), data=st.data())
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


def naive_select(entries: Sequence[FilterEntry], prefix: str, block: bytes) -> bytes:
    """Select line by line, as `LineFilter` is defined."""
    selected = b""
    for line in block.split(b"\n")[:-1]:
        raw = prefix.encode() + line
        text = raw.decode(errors="replace")
        if any(
            entry.encode(errors="surrogateescape") in raw if isinstance(entry, str) else entry.search(text)
            for entry in entries
        ):
            selected += raw + b"\n"
    return selected


words = st.text(alphabet="aber:]é\n\udcff", max_size=4)
patterns = st.sampled_from(["^a", "b$", r"\Aa.*b\Z", ":e", r"é|\ufffd", "(?s)a.b", r"a\s", "(?<=:)a"]).map(re.compile)


class TestFilter:
    """`LineFilter`."""

    @given(
        entries=st.lists(words, max_size=3) | st.lists(words | patterns, max_size=3),
        prefix=st.text(alphabet="ab:]é", max_size=4),
        block=lines,
    )
    def test_is_what_the_naive_definition_says(self, entries: list[FilterEntry], prefix: str, block: bytes) -> None:
        """It selects what looking at each prefixed line selects."""
        assert LineFilter(entries, prefix.encode()).select(block) == naive_select(entries, prefix, block)

    @pytest.mark.parametrize(
        ("entries", "selected"),
        [
            ([], b""),
            (["nothing"], b""),
            (["two"], b"P0:two\n"),
            (["o"], b"P0:one\nP0:two\n"),
            (["three", "one"], b"P0:one\nP0:three\n"),
            ([""], b"P0:one\nP0:two\nP0:three\n"),
            (["0:"], b"P0:one\nP0:two\nP0:three\n"),
            (["0:t"], b"P0:two\nP0:three\n"),
            (["P0:o"], b"P0:one\n"),
            ([re.compile("^P0:t.*e$")], b"P0:three\n"),
            ([re.compile("tw"), "ee"], b"P0:two\nP0:three\n"),
            (["one\n"], b""),
            (["\ntwo"], b""),
            ([":one\ntwo"], b""),
        ],
    )
    def test_any_entry_will_do(self, entries: list[FilterEntry], selected: bytes) -> None:
        """Text is a substring, a pattern is searched for, both in the prefixed line without its end."""
        assert LineFilter(entries, b"P0:").select(b"one\ntwo\nthree\n") == selected

    @pytest.mark.parametrize("count", [1, 5, 1000])
    @pytest.mark.parametrize("words", [["hit"], [":hi", "other"], ["h", "i", "t"]])
    def test_few_and_many_hits(self, words: list[FilterEntry], count: int) -> None:
        """Whichever way is faster for the number of hits, the lines are the same."""
        block = b"miss\nhit 1\nxhit\n" * count

        assert LineFilter(words, b"P:").select(block) == naive_select(words, "P:", block)

    def test_text_of_raw_bytes_is_found(self) -> None:
        """Text from ``os.fsdecode`` finds the bytes that it stands for; patterns see a replacement."""
        block = b"a\xff\nb\n"

        assert LineFilter(["\udcff"], b"").select(block) == b"a\xff\n"
        assert LineFilter([re.compile("\ufffd")], b"").select(block) == b"a\xff\n"

    def test_an_empty_block_has_no_lines(self) -> None:
        """Nothing is selected from nothing, not even by what selects everything."""
        for entries in ([""], ["x"], [re.compile("")]):
            assert LineFilter(entries, b"P:").select(b"") == b""


class TestCheckFilters:
    """`check_filters`."""

    def test_gives_a_tuple(self) -> None:
        """A list is taken as it is, and no list is an empty one."""
        pattern = re.compile("x")

        assert check_filters("f", ["a", pattern]) == ("a", pattern)
        assert check_filters("f", []) == check_filters("f", None) == ()

    @pytest.mark.parametrize("filters", ["ERROR", re.compile("ERROR"), b"ERROR", 3])
    def test_no_list(self, filters: object) -> None:
        """A bare entry is a mistake that the message mends."""
        with pytest.raises(SpecificationTypeError, match=r"^duplicate_stdout_filters is .*: pass a list .*\['?.*ERROR"):
            check_filters("duplicate_stdout_filters", filters)

    @pytest.mark.parametrize("entry", [b"x", re.compile(b"x"), None, 3])
    def test_an_entry_of_another_type(self, entry: object) -> None:
        """The message says which entry it is."""
        with pytest.raises(SpecificationTypeError, match=rf"^f\[1\] is {re.escape(repr(entry))}: an entry is"):
            check_filters("f", ["fine", entry])

    def test_text_that_no_output_can_have(self) -> None:
        """A lone surrogate that stands for no byte is refused."""
        with pytest.raises(SpecificationError, match=r"f\[0\] is .*no output has"):
            check_filters("f", ["\ud800"])
