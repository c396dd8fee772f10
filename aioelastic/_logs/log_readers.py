"""Beginning to read the lines of a group: what is asked for, and what there is."""

import weakref
from collections.abc import Iterator
from typing import Final

from aioelastic._base.ranks import is_rank
from aioelastic._errors.exceptions import RanksError, SpecificationError, SpecificationTypeError
from aioelastic._logs.file_tails import FileTail
from aioelastic._logs.line_stream import LineStream
from aioelastic._logs.log_files import LogFiles, Place
from aioelastic._logs.reading import Reading
from aioelastic._logs.std import Std

_NAMES: Final = {Std.OUT: "stdout", Std.ERR: "stderr"}


def read_lines(files: LogFiles, rank: object, stream: object, *, from_start: bool, last: object = 0) -> LineStream:
    """Give a reader of a group's lines; on the loop.

    Args:
        files: The group's files.
        rank: Whose lines; ``None`` for all ranks'.
        stream: Of which stream; ``None`` for both.
        from_start: Whether to begin with what is in the files already.
        last: How many lines of each file to begin with instead.

    Raises:
        SpecificationTypeError: One of them is of the wrong type.
        SpecificationError: There is no such rank or stream, or nothing of it is in a file that can be read; or ``last``
            is negative, or given with ``from_start``.
        OSError: The system gives no way to be told when a file changes.
    """
    ranks = _asked_ranks(rank, len({each for each, _ in files.paths}))
    mask = _asked_streams(stream)
    count = _asked_last(last, from_start=from_start)
    asked = [place for place in files.paths if place[0] in ranks and place[1] in mask]
    tails = [tail for place in asked for tail in _tail(files, place, count)]
    if asked and not tails:
        raise SpecificationError(_words_of_refusal(files, asked[0]))
    reading = _acquire_reading(files)
    if any(not tail.file.is_pumped and tail.place not in files.ended for tail in tails):
        reading.watch_files()
    reader = LineStream(tails, reading)
    for place in asked:
        if place in files.ended:
            reader.end(place)
    files.readers.add(reader)
    return reader


def _tail(files: LogFiles, place: Place, last: int | None) -> Iterator[FileTail]:
    file = files.readable.get(place)
    # On the loop, and so only once: what is written from now on has to be told from what was.
    size = None if file is None else file.size()
    if file is None or size is None:
        return
    beginning = file.start if file.start <= size else 0
    position = beginning if last is None else size
    yield FileTail(place, file, position, last=last, was_over=place in files.ended)


def _acquire_reading(files: LogFiles) -> Reading:
    """Give what all readers of the group share: a user may have few watches, and threads are best kept few."""
    reading = None if files.reading is None else files.reading()
    if reading is None:
        reading = Reading(files.stir)
        files.reading = weakref.ref(reading)
    return reading


def _words_of_refusal(files: LogFiles, place: Place) -> str:
    rank, stream = place
    path = files.paths[place]
    whose = f"{_NAMES[stream]} of rank {rank}"
    if not path:
        return (
            f"{whose} has no log file to read lines from: redirect or tee it into one, as with "
            "DefaultLogsSpecs(redirects=Std.ALL) or tee=Std.ALL"
        )
    if place not in files.readable:
        return (
            f"lines of {whose} cannot be read from {path!r}, which is no regular file, or shared with another stream: "
            "give it a regular file of its own"
        )
    return f"{whose} has lost its log file {path!r}: it was removed, or another one put in its place"


def _asked_ranks(rank: object, nprocs: int) -> range:
    if rank is None:
        return range(nprocs)
    if isinstance(rank, bool) or not isinstance(rank, int):
        raise SpecificationTypeError(f"rank must be an int, or None for all ranks, not {type(rank).__name__}")
    if not is_rank(rank, nprocs):
        raise RanksError("rank", extra=[rank], nprocs=nprocs)
    return range(rank, rank + 1)


def _asked_streams(stream: object) -> Std:
    if stream is None:
        return Std.ALL
    if isinstance(stream, bool) or not isinstance(stream, int):
        raise SpecificationTypeError(
            f"stream must be Std.OUT or Std.ERR, or None for both, not {type(stream).__name__}"
        )
    if not Std.OUT <= stream <= Std.ALL:
        raise SpecificationError(f"stream is {stream!r}: give Std.OUT or Std.ERR, or None for both")
    return Std(stream)


def _asked_last(last: object, *, from_start: bool) -> int | None:
    """Give how many lines to begin with; ``None`` for all."""
    if isinstance(last, bool) or not isinstance(last, int):
        raise SpecificationTypeError(f"last must be a number of lines, not {type(last).__name__}")
    if last < 0:
        raise SpecificationError(f"last is {last}: give 0 lines or more")
    if from_start and last:
        raise SpecificationError("from_start begins with the first line, last with one of the last: give one of them")
    return None if from_start else last
