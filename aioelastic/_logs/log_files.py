"""The files that the lines of one group can be read from, and the news of them."""

import os
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

from aioelastic._logs.std import Std

if TYPE_CHECKING:
    from aioelastic._logs.line_stream import LineStream
    from aioelastic._logs.reading import Reading

Place = tuple[int, Std]
"""A rank, and one of its streams."""


class LogFile(NamedTuple):
    """A regular file that one stream has for itself, as it was found when it was opened.

    Attributes:
        path: Where it is.
        identity: Its device and inode.
        start: Where the stream's bytes begin: what was there before belongs to somebody else.
        is_pumped: Whether the supervisor writes it, and so knows when.
    """

    path: str
    identity: tuple[int, int]
    start: int
    is_pumped: bool

    def size(self) -> int | None:
        """Give the bytes it has now; ``None`` if it is not there any more, or another one in its place."""
        try:
            about = os.lstat(self.path)
        except OSError:
            return None
        return about.st_size if self.is_the_same(about) else None

    def is_the_same(self, about: os.stat_result) -> bool:
        """Tell whether that is this file."""
        return (about.st_dev, about.st_ino) == self.identity


class LogFiles:
    """The log files of one group, and who reads them.

    Args:
        paths: Each stream of each rank, and the path of its log file (``""`` for none).

    Attributes:
        readable: The files that can be read line by line, once they are opened.
        ended: The streams that are at their end.
        readers: Who reads them.
        reading: What the readers share, as long as there are any.
    """

    def __init__(self, paths: Mapping[Place, str]) -> None:
        self.paths = paths
        self.readable: dict[Place, LogFile] = {}
        self.ended: set[Place] = set()
        # An iterator that somebody has dropped is no reader any more.
        self.readers: weakref.WeakSet[LineStream] = weakref.WeakSet()
        self.reading: weakref.ref[Reading] | None = None

    def stir(self, place: Place) -> None:
        """Tell the readers that a file has changed."""
        if self.readers:
            for reader in list(self.readers):
                reader.stir(place)

    def end(self, place: Place) -> None:
        """Tell the readers that a file will not change any more."""
        if place not in self.ended:
            self.ended.add(place)
            for reader in list(self.readers):
                reader.end(place)

    def close(self) -> None:
        """Learn that nothing of the group is left; who has not read all the lines yet goes on."""
        for place in self.paths:
            self.end(place)


class Bell:
    """Tells that a stream's bytes have come into its file; for the pump it is one more copy."""

    keeps_up = True
    """It takes nothing, so it is never behind."""

    def __init__(self, files: LogFiles, place: Place) -> None:
        self._files = files
        self._place = place

    def offer(self, chunk: bytes) -> None:
        """Tell of bytes."""
        del chunk
        self._files.stir(self._place)

    def miss(self, count: int) -> None:
        """Do nothing: what nobody can get is not in the file."""

    async def finish(self) -> None:
        """Tell that the stream is at its end."""
        self._files.end(self._place)

    def give_up(self) -> None:
        """Do nothing: the end of the group will tell."""
