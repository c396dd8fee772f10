"""Whether the limit of open files can hold a group, asked before any process exists."""

import contextlib
import os
import resource
from collections.abc import Sequence

from aioelastic._errors.exceptions import DescriptorLimitError
from aioelastic._logs.routes import RankRoutes, Way

_PER_WAY = {Way.INHERIT: 0, Way.DISCARD: 0, Way.FILE: 1, Way.PUMP: 2}
"""Descriptors of one stream in the supervisor: its file, and the reading end of its pipe."""

_SLACK = 24
"""Descriptors for one start (pipes, /dev/null, the directory of a look-up), consoles and filtered copies."""


def check_descriptors(routes: Sequence[RankRoutes], per_rank: int) -> None:
    """Compare what a group needs with the limit in force.

    Args:
        routes: The ways of each rank's streams.
        per_rank: Descriptors that a rank takes beyond those.

    Raises:
        DescriptorLimitError: The limit is too low.
    """
    streams = sum(_PER_WAY[route.way] for ways in routes for route in ways)
    needed = _open_descriptors() + streams + per_rank * len(routes) + _SLACK
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and needed > limit:
        raise DescriptorLimitError(needed, limit, len(routes))


def _open_descriptors() -> int:
    """Count the descriptors of this program, the one included that counting takes."""
    for directory in ("/proc/self/fd", "/dev/fd"):
        with contextlib.suppress(FileNotFoundError):
            return len(os.listdir(directory))  # noqa: PTH208 - only the number matters
    return 0
