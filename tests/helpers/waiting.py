"""Waiting for a sign, with a bound."""

import asyncio
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PATIENCE = 20.0
"""Seconds after which a sign that does not come fails the test."""


async def until(sign: Callable[[], object], what: str = "a sign") -> None:
    """Wait, with the loop going on, until something is so."""
    deadline = time.monotonic() + PATIENCE
    while not sign():
        assert time.monotonic() < deadline, f"{what} did not come within {PATIENCE} seconds"
        await asyncio.sleep(0.005)


async def until_written(path: str | Path, text: str) -> None:
    """Wait until a file holds a text."""
    await until(lambda: Path(path).exists() and text in Path(path).read_text(errors="replace"), f"{text!r} in {path}")


def is_alive(pid: int) -> bool:
    """Tell whether a process lives; a zombie does not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
