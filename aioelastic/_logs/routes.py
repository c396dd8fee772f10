"""Which way each stream of each rank takes; decided before anything is opened (pure)."""

import enum
import os
from collections.abc import Collection
from typing import NamedTuple

from aioelastic._logs.destinations import LogsDest


class Way(enum.Enum):
    """How a stream leaves its rank."""

    INHERIT = enum.auto()
    """The rank writes to the supervisor's own descriptor."""

    DISCARD = enum.auto()
    """The rank writes to /dev/null."""

    FILE = enum.auto()
    """The rank writes into its file; the supervisor is not in the way."""

    PUMP = enum.auto()
    """The rank writes into a pipe, and a pump feeds file, console and filtered copy."""


class Route(NamedTuple):
    """The way of one stream.

    Attributes:
        way: How it leaves the rank.
        file: Path of the rank's file; ``""`` for none.
        console: Whether the pump feeds the console.
        filtered: Path of the filtered copy that the pump feeds; ``""`` for none.
    """

    way: Way
    file: str = ""
    console: bool = False
    filtered: str = ""


class RankRoutes(NamedTuple):
    """The ways of a rank's two streams."""

    stdout: Route
    stderr: Route


def route_group(
    dest: LogsDest,
    nprocs: int,
    shown_ranks: Collection[int] | None,
    *,
    stdout_filtered: bool,
    stderr_filtered: bool,
) -> list[RankRoutes]:
    """Decide the ways of all streams of a group.

    Args:
        dest: Where the log specification puts things.
        nprocs: Number of ranks.
        shown_ranks: Ranks that may use the console; ``None`` for all.
        stdout_filtered: There are filters for stdout.
        stderr_filtered: There are filters for stderr.
    """
    filtered_out = dest.filtered_stdout if stdout_filtered else ""
    filtered_err = dest.filtered_stderr if stderr_filtered else ""
    return [
        RankRoutes(
            stdout=_route(dest.stdouts.get(rank, ""), dest.tee_stdouts.get(rank, ""), filtered_out, shown=shown),
            stderr=_route(dest.stderrs.get(rank, ""), dest.tee_stderrs.get(rank, ""), filtered_err, shown=shown),
        )
        for rank in range(nprocs)
        for shown in [shown_ranks is None or rank in shown_ranks]
    ]


def _route(redirected: str, teed: str, filtered: str, *, shown: bool) -> Route:
    file = _file(redirected or teed)
    filtered = _file(filtered)
    if teed and (shown or filtered):
        return Route(way=Way.PUMP, file=file, console=shown, filtered=filtered)
    if redirected or teed:
        return Route(way=Way.FILE, file=file) if file else Route(way=Way.DISCARD)
    return Route(way=Way.INHERIT if shown else Way.DISCARD)


def _file(path: str) -> str:
    return "" if path == os.devnull else path
