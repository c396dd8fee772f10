"""Names for the shapes that come up everywhere."""

import os
from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

StrPath: TypeAlias = str | os.PathLike[str]
"""A path as people pass it."""

EnvValue: TypeAlias = str | os.PathLike[str] | int | float | None
"""A variable's value as people pass it; ``None`` removes an inherited variable."""

Environment: TypeAlias = Mapping[str, EnvValue]
"""Variables of one rank as people pass them."""

StartMethod: TypeAlias = Literal["spawn", "fork", "forkserver"]
"""How a function rank's process comes into being, in the words of `multiprocessing`."""

START_METHODS: Final[tuple[StartMethod, ...]] = ("spawn", "fork", "forkserver")
"""All of them; every POSIX system has all three."""
