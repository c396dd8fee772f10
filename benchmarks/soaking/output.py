"""What a rank writes: a sequence of records that its seed determines, and what a console makes of it.

A record is written by one call and counted before and after it. So at any moment the rank's stream is the beginning of
the sequence, at least as long as what it has counted as written, at most as long as what it has begun.
"""

import zlib
from collections.abc import Iterator

WORD = b"pick"
"""What filters look for."""

LINE_LIMIT = 64 * 1024
CUT_MARK = b" [cut by aioelastic]"
"""What is documented of lines that are too long for a console."""


def record(seed: int, stream: int, number: int) -> bytes:  # noqa: PLR0911 - a kind each
    """Give one record of a stream."""
    dice = zlib.crc32(b"%d %d %d" % (seed, stream, number))
    head = b"%d.%d " % (number, dice)
    kind = dice % 40
    if kind == 0:
        return head + b"long " + b"x" * (dice // 40 % 150_000) + b"\n"
    if kind in {1, 2}:
        return head + b"unfinished "
    if kind == 3:
        # After a line end, since a console may have shown the unfinished line before it by now.
        return b"\n" + b"".join(b"%s%d%%\r" % (head, percent) for percent in range(0, 101, 20)) + b"\n"
    if kind == 4:
        return head + b"\xff\xfe\xc3 \xe2\x82 no text\n"
    if kind == 5:
        return head + b"\0\0 nothing\r\n"
    if kind == 6:
        return head + WORD + b" this\n"
    if kind == 7:
        return b"\n\n"
    return head + b"".join(b"line %d of %d\n" % (line, number) for line in range(1 + dice // 40 % 40))


def sequence(seed: int, stream: int, count: int) -> tuple[bytes, list[int]]:
    """Give the first records, and where each begins; the last entry is where the next one would."""
    records = [record(seed, stream, number) for number in range(count)]
    offsets = [0]
    for each in records:
        offsets.append(offsets[-1] + len(each))
    return b"".join(records), offsets


def shown_lines(content: bytes) -> Iterator[bytes]:
    """Give the lines that a console which is no terminal shows of a stream, without prefixes and ends."""
    lines = content.split(b"\n")
    if not lines[-1].strip(b"\r"):
        lines.pop()
    for line in lines:
        states = line.rstrip(b"\r")
        rest = states[states.rfind(b"\r") + 1 :]
        while len(rest) > LINE_LIMIT:
            yield rest[:LINE_LIMIT] + CUT_MARK
            rest = rest[LINE_LIMIT:]
        yield rest


def value_of(seed: int, size: int) -> object:
    """Give what a function returns."""
    return {"seed": seed, "data": b"%d " % seed * (size // 8), "list": list(range(size % 50))}
