"""Tiny rank programs, as arguments for ``sh -c`` or ``python -c``."""

import sys
from typing import Final

PYTHON: Final = sys.executable
"""The interpreter that runs the tests."""

SLEEP: Final = "exec sleep 60"
"""Does nothing for longer than any test may take, and dies of SIGTERM at once."""

DEAF: Final = "trap '' TERM; echo ready; while :; do sleep 60; done"
"""Says that it is ready, and ignores SIGTERM, itself and its children."""


def shells(*scripts: str) -> dict[int, tuple[str, str]]:
    """Give the args of a group of ``sh``, one script per rank."""
    return {rank: ("-c", script) for rank, script in enumerate(scripts)}


def pythons(*programs: str) -> dict[int, tuple[str, str]]:
    """Give the args of a group of `PYTHON`, one program per rank."""
    return {rank: ("-c", program) for rank, program in enumerate(programs)}
