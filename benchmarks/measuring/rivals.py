"""What aioelastic is measured against, as one would write it by hand: ranks of a command, started and ended.

Plain asyncio in its fair form, torch's own ``start_processes``, and the floor: ``Popen`` in a loop.
"""

import asyncio
import contextlib
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

PERIOD: Final = 0.1
"""Seconds between two looks of torch's at its ranks, as its agent has it."""

Commands = Mapping[int, tuple[str, ...]]
"""Rank -> the words of its command; the first is the same for all, as a group has one entrypoint."""


def entrypoint_and_args(commands: Commands) -> tuple[str, dict[int, tuple[str, ...]]]:
    """Divide commands as both ``start_processes`` want them."""
    return commands[0][0], {rank: words[1:] for rank, words in commands.items()}


async def plain_start(commands: Commands) -> list[asyncio.subprocess.Process]:
    """Start one after the other: asyncio does not start two at once, so tasks would only cost."""
    return [
        await asyncio.create_subprocess_exec(*words, stdin=subprocess.DEVNULL, start_new_session=True)
        for words in commands.values()
    ]


async def plain_close(processes: list[asyncio.subprocess.Process]) -> None:
    """Tell all to end, then wait for all."""
    for process in processes:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
    for process in processes:
        await process.wait()


def popen_start(commands: Commands) -> list["subprocess.Popen[bytes]"]:
    """Start one after the other, with nothing around it."""
    return [subprocess.Popen(words, stdin=subprocess.DEVNULL, start_new_session=True) for words in commands.values()]


@contextlib.contextmanager
def torch_starter() -> Iterator[Callable[..., Any]]:
    """Give torch's ``start_processes``, imported, with those arguments filled in that it insists on.

    Its own messages are off, and what it creates for logs is removed afterwards.
    """
    import logging  # noqa: PLC0415 - as the next one, for torch only

    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, start_processes  # noqa: PLC0415

    logging.disable(logging.ERROR)
    folder = tempfile.mkdtemp()

    def start(entrypoint: Any, args: Mapping[int, tuple[Any, ...]], **options: Any) -> Any:
        envs: dict[int, dict[str, str]] = {rank: {} for rank in args}
        return start_processes("bench", entrypoint, dict(args), envs, DefaultLogsSpecs(folder), **options)

    try:
        yield start
    finally:
        shutil.rmtree(folder, ignore_errors=True)
