"""Starting groups of real ranks, up to the point where they said that they are ready."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import psutil

from aioelastic import PContext, Std, start_processes
from tests.helpers.programs import PYTHON, pythons, shells
from tests.helpers.waiting import until, until_written

WAITS_FOR = "while ! [ -e {sign} ]; do sleep 0.01; done"
"""Has a shell wait for a file, in its working directory."""

FAILS_ON_GO = WAITS_FOR.format(sign="go") + "; exit 3"
"""Fails as soon as there is a file ``go``: to be made once the other ranks are ready for that."""


@asynccontextmanager
async def shell_group(folder: Path, *scripts: str, **options: Any) -> AsyncIterator[PContext]:
    """Give a running group of shells, once each whose script has ``echo ready`` has said so."""
    async with _group(folder, "sh", shells(*scripts), scripts, options) as context:
        yield context


@asynccontextmanager
async def python_group(folder: Path, *programs: str, **options: Any) -> AsyncIterator[PContext]:
    """Give a running group of Python programs, once each that has ``ready`` in it has printed that."""
    async with _group(folder, PYTHON, pythons(*programs), programs, options) as context:
        yield context


@asynccontextmanager
async def _group(
    folder: Path, entrypoint: str, args: dict[int, tuple[str, str]], texts: tuple[str, ...], options: dict[str, Any]
) -> AsyncIterator[PContext]:
    logs = {"redirects": Std.ALL, "log_dir": folder / "logs", "cwd": folder}
    async with start_processes("test", entrypoint, args, **{**logs, **options}) as context:
        for rank, text in enumerate(texts):
            if "ready" in text:
                await until_written(context.stdouts[rank], "ready")
        yield context


def written(context: PContext, rank: int) -> str:
    """Give what a rank has written to its redirected or teed stdout."""
    return Path(context.stdouts[rank]).read_text(errors="replace")


def spoken_pid(context: PContext, rank: int) -> int:
    """Give the pid in a rank's line ``child PID``."""
    return int(written(context, rank).partition("child ")[2].split()[0])


async def until_status(pid: int, *statuses: str) -> None:
    """Wait until a process is in one of these states."""

    def status() -> str:
        with suppress(psutil.NoSuchProcess):
            return psutil.Process(pid).status()
        return "gone"

    await until(lambda: status() in statuses, f"{statuses} of {pid}")
