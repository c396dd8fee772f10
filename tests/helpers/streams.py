"""Streams of output, in chunks, and the records that they are cut into."""

from collections.abc import Iterable
from itertools import pairwise
from typing import Final

from hypothesis import strategies as st

from aioelastic._logs.lines import LineCutter

LIMIT: Final = 68
"""The smallest limit, so that short examples reach it."""

_BITS: Final = st.sampled_from(
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
STREAMS: Final = st.lists(_BITS | st.binary(max_size=6), max_size=16).map(b"".join)
"""Whole streams with what is hard about lines, terminals and characters."""


def cut(chunks: Iterable[bytes], *, terminal: bool = False, limit: int = LIMIT) -> bytes:
    """Give all records of a stream that comes in these chunks."""
    cutter = LineCutter(terminal=terminal, limit=limit)
    cuts = [*map(cutter.feed, chunks), cutter.finish()]

    assert not any(one.continues for one in cuts)
    return b"".join(one.data for one in cuts)


def in_chunks(stream: bytes, data: st.DataObject) -> list[bytes]:
    """Divide a stream at places of hypothesis' choice."""
    bounds = [0, *sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=8))), len(stream)]
    return [stream[start:end] for start, end in pairwise(bounds)]
