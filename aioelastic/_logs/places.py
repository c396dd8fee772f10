"""Where in its file a stream's bytes are (pure)."""

import bisect

from aioelastic._logs.moves import Piece

_RUNS_LIMIT = 1000
"""Runs of a stream's bytes that are remembered: bytes of others between them are rare, and ours to survive."""


class Places:
    """Finds the file's place for a position of the stream.

    A stream's bytes are one run in its file, unless somebody else has written between them, or emptied the file.

    Attributes:
        end: The stream's bytes so far, kept by the file or not.
        cuts: How often the file was emptied.
    """

    def __init__(self) -> None:
        self.end = 0
        self.cuts = 0
        self._kept = 0
        self._starts: list[int] = []
        self._offsets: list[int] = []

    def add(self, piece: Piece) -> None:
        """Note the stream's next bytes."""
        if piece.anew:
            self.cuts += 1
            self._starts.clear()
            self._offsets.clear()
        offset = piece.place - self.end
        if piece.kept:
            if not self._offsets or self._offsets[-1] != offset:
                self._starts.append(self.end)
                self._offsets.append(offset)
                del self._starts[:-_RUNS_LIMIT], self._offsets[:-_RUNS_LIMIT]
            self._kept = self.end + piece.kept
        self.end += len(piece.data) + piece.lost

    def find(self, position: int) -> tuple[int, int, int]:
        """Find the first byte from a position of the stream on that the file has.

        Returns:
            Its position in the stream, its place in the file, and how many there are in a row; none: 0.
        """
        if not self._starts:
            return self.end, 0, 0
        run = max(bisect.bisect_right(self._starts, position) - 1, 0)
        start = max(position, self._starts[run])
        stop = self._starts[run + 1] if run + 1 < len(self._starts) else self._kept
        return (start, start + self._offsets[run], stop - start) if start < stop else (self.end, 0, 0)
