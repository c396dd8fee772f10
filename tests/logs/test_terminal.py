"""What a rank may do to a terminal."""

import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._logs.terminal import SGR_LIMIT, TerminalSanitiser, close_colours


def sanitised(*chunks: bytes) -> bytes:
    """Pass the chunks of a whole stream."""
    sanitiser = TerminalSanitiser()
    return b"".join(map(sanitiser.feed, chunks)) + sanitiser.finish()


_SEVEN_BIT = {chr(0x40 + ord(final)): "\x1b" + final for final in "[]PX^_\\"}


def escape_length(text: str) -> int:
    """Give the length of the sequence that the text begins with, character by character."""
    kind = text[1:2]
    position = 2
    if kind == "[":
        while text[position : position + 1] and " " <= text[position] <= "?":
            position += 1
        return position + ("@" <= text[position : position + 1] <= "~")
    if kind and kind in "]PX^_":
        while text[position : position + 1] not in {
            "",
            *"\x07\x18\x1a\x1b\r\n",
            *map(chr, range(0x80, 0xA0)),
        }:
            position += 1
        return position + (text[position : position + 1] == "\x07")
    position = 1
    while text[position : position + 1] and " " <= text[position] <= "/":
        position += 1
    return position + ("0" <= text[position : position + 1] <= "~")


def is_colour(sequence: str) -> bool:
    """Whether a sequence may pass."""
    return (
        sequence[:2] == "\x1b["
        and sequence[-1] == "m"
        and set(sequence[2:-1]) <= set("0123456789;:")
        and len(sequence) <= SGR_LIMIT + 3
    )


def naive(stream: bytes) -> bytes:
    """Sanitise a whole stream, one character after the other."""
    text = "".join(_SEVEN_BIT.get(character, character) for character in stream.decode(errors="surrogateescape"))
    shown = ""
    position = 0
    while position < len(text):
        character = text[position]
        length = 1
        if character == "\x1b":
            length = escape_length(text[position:])
            if is_colour(text[position : position + length]):
                shown += text[position : position + length]
        elif "\udc80" <= character <= "\udcff":
            shown += f"\\x{ord(character) - 0xDC00:02x}"
        elif character in "\t\r\n" or (character >= " " and not "\x7f" <= character <= "\x9f"):
            shown += character
        position += length
    return shown.encode()


streams = st.lists(
    st.sampled_from(
        [
            *(
                b"\x1b",
                b"[",
                b"]",
                b"P",
                b"\\",
                b"m",
                b";",
                b"31",
                b"1;38:5:196",
                b"0",
                b" ",
                b"?25",
                b"l",
                b"(B",
                b"c",
            ),
            *(b"\x07", b"\x08", b"\x18", b"\x7f", b"\x00", b"\n", b"\r", b"\t", b"x", b"title"),
            *(
                "é".encode(),
                "😀".encode(),
                b"\xc3",
                b"\xf0\x9f",
                b"\xff",
                b"\xc2",
                b"\x9b",
                b"\x9d",
                b"\x85",
                b"\x80",
            ),
            *(
                b"\x1b[31m",
                b"\x1b[0m",
                b"\x1b]0;title\x07",
                b"\x1bP1$q",
                b"\x1b[" + b"1" * SGR_LIMIT,
                b"\\udcff",
                b"\\x",
            ),
        ]
    )
    | st.binary(max_size=4),
    max_size=20,
).map(b"".join)


@given(stream=streams)
def test_sanitising_is_what_the_naive_definition_says(stream: bytes) -> None:
    """A stream in one chunk gives what going through it character by character gives."""
    assert sanitised(stream) == naive(stream)


@given(stream=streams, data=st.data())
def test_chunks_make_no_difference(stream: bytes, data: st.DataObject) -> None:
    """A sequence or a character split between chunks does not leak."""
    places = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8)))
    bounds = [0, *places, len(stream)]

    chunks = [stream[start:end] for start, end in pairwise(bounds)]

    assert sanitised(*chunks) == sanitised(stream)
    assert sanitised(*(stream[at : at + 1] for at in range(len(stream)))) == sanitised(stream)


@given(stream=streams)
def test_nothing_else_reaches_the_terminal(stream: bytes) -> None:
    """The output is valid UTF-8 whose only controls are tabs, record ends and colour sequences."""
    text = sanitised(stream).decode()

    pieces = text.split("\x1b")
    assert all(is_colour("\x1b" + piece[: piece.find("m") + 1]) for piece in pieces[1:])
    assert not any(ord(c) < 0x20 or 0x7F <= ord(c) < 0xA0 for c in "".join(pieces) if c not in "\t\r\n")


@pytest.mark.parametrize(
    ("stream", "shown"),
    [
        (b"plain\ttext\n", b"plain\ttext\n"),
        ("naïve — 你好 😀\n".encode(), "naïve — 你好 😀\n".encode()),
        (b"\x1b[1;31mred\x1b[0m", b"\x1b[1;31mred\x1b[0m"),
        (b"\x1b[38;2;1;2;3mred\x1b[m", b"\x1b[38;2;1;2;3mred\x1b[m"),
        (b"a\x1b[2Jb\x1b[1;1Hc\x1b[?25ld\x1b[Ke", b"abcde"),
        (b"a\x1b]0;title\x07b\x1b]8;;http://x\x1b\\c", b"abc"),
        (b"a\x1bP1$qm\x1b\\b\x1b_apc\x1b\\c\x1b^pm\x1b\\d\x1bXsos\x1b\\e", b"abcde"),
        (b"a\x1bcb\x1b(0c\x1b7d\x1b=e", b"abcde"),
        (b"a\x00\x07\x08\x0b\x0c\x0e\x7fb", b"ab"),
        ("a\x85b\x9b2Jc\x9d0;title\x9cd\x9b31me".encode(), b"abcd\x1b[31me"),
        (b"\xff\xfe ok \xc3", rb"\xff\xfe ok \xc3"),
        (b"\\udcff\xff", rb"\udcff\xff"),
        (b"\x1b]0;never ended\nnext line\n", b"\nnext line\n"),
        (b"\x1b[31", b""),
        (b"\x1b[" + b"1" * (SGR_LIMIT + 1) + b"mtoo long", b"too long"),
        (b"\x1b\x1b[2J[2J", b"[2J"),
    ],
)
def test_what_is_passed(stream: bytes, shown: bytes) -> None:
    """Text, tabs, record ends and colours pass; sequences go whole; undecodable bytes show as escapes."""
    assert sanitised(stream) == shown


def test_endless_sequences_take_no_memory() -> None:
    """A sequence that never ends is dropped as it comes, at its first bytes' cost, up to the line's end."""
    sanitiser = TerminalSanitiser()
    sanitiser.feed(b"\x1b]0;")

    assert [sanitiser.feed(b"x" * 1000) for _ in range(10)] == [b""] * 10
    assert len(sanitiser._begun) < 100
    assert sanitiser.feed(b"y\nz") == b"\nz"


@pytest.mark.parametrize("unit", [b"\x1b", b"\x1b]", b"\x1b[1", b"\xc2\x90", b"\x1b[31mx", b"\x1bP;", b"\xff"])
def test_time_is_linear(unit: bytes) -> None:
    """Nothing makes the expressions go over the same bytes again and again."""
    hostile = unit * (1_000_000 // len(unit))
    began = time.process_time()

    close_colours(sanitised(hostile))

    assert time.process_time() - began < 5


@pytest.mark.parametrize(
    ("text", "closed"),
    [
        (b"plain\n", b"plain\n"),
        (b"\x1b[31mred\n", b"\x1b[31mred\x1b[0m\n"),
        (b"\x1b[31mred\x1b[0m plain\n", b"\x1b[31mred\x1b[0m plain\n"),
        (b"\x1b[31mred\x1b[m\n", b"\x1b[31mred\x1b[m\n"),
        (b"\x1b[31mred\x1b[1mbold\rnext\n", b"\x1b[31mred\x1b[1mbold\x1b[0m\rnext\n"),
        (b"one\n\x1b[7mtwo", b"one\n\x1b[7mtwo\x1b[0m"),
    ],
)
def test_colours_end_with_their_record(text: bytes, closed: bytes) -> None:
    """A colour left open is closed before the record's end, and only then."""
    assert close_colours(text) == closed
