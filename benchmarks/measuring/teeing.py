"""Ranks whose stdout goes to a file each and, with a prefix, to the console, as each subject does it."""

import asyncio
import contextlib
import io
import subprocess
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from measuring.delays import watch_delays
from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """What is to be done."""

    program: str
    args: Mapping[int, tuple[str, ...]]
    folder: Path
    word: str = ""
    """What lines must have that go to a file of their own as well, if there is one (the floor has none)."""
    at_once: bool = False
    """Whether each line must be on the console at once; else some may wait for others, which is faster."""


def run_teed(subject: str, job: Job) -> dict[str, float]:
    """Run a job to its end, and give the delays of the event loop meanwhile, if there is one."""
    if subject in _ASYNC:
        late = asyncio.run(watch_delays(_ASYNC[subject](job)))
    else:
        _BLOCKING[subject](job)
        late = {}
    sys.stdout.flush()
    return late


def import_subject(subject: str) -> None:
    """Import now what `run_teed` needs."""
    if subject == TORCH:
        import torch.distributed.elastic.multiprocessing  # noqa: F401, PLC0415 - others are measured without it
    elif subject == AIOELASTIC:
        from aioelastic import start_processes  # noqa: F401, PLC0415 - see above


async def _with_aioelastic(job: Job) -> None:
    from aioelastic import Std, start_processes  # noqa: PLC0415 - see above

    filters = [job.word] if job.word else None
    async with start_processes(
        "rank", job.program, job.args, log_dir=job.folder, tee=Std.OUT, duplicate_stdout_filters=filters
    ) as context:
        result = await context.wait()
        assert result is not None
        assert not result.is_failed()


async def _with_readline(job: Job) -> None:
    """Do it line by line, as one would by hand."""
    word = job.word.encode()
    buffering = 0 if job.at_once else -1
    console = sys.stdout.buffer
    with contextlib.ExitStack() as stack:
        filtered = stack.enter_context((job.folder / "filtered.log").open("wb")) if word else None

        async def run(rank: int) -> None:
            process = await asyncio.create_subprocess_exec(job.program, *job.args[rank], stdout=asyncio.subprocess.PIPE)
            assert process.stdout is not None
            prefix = f"[rank{rank}]:".encode()
            with (job.folder / f"{rank}.log").open("wb", buffering=buffering) as file:
                while line := await process.stdout.readline():
                    file.write(line)
                    prefixed = prefix + line
                    console.write(prefixed)
                    if job.at_once:
                        console.flush()
                    if filtered and word in prefixed:
                        filtered.write(prefixed)
            assert await process.wait() == 0

        await asyncio.gather(*map(run, job.args))


def _with_torch(job: Job) -> None:
    """Let torch do it: the ranks write their files, and threads read these."""
    from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes  # noqa: PLC0415

    if job.at_once:
        assert isinstance(sys.stdout, io.TextIOWrapper)
        sys.stdout.reconfigure(line_buffering=True)
    context = start_processes(
        "rank",
        job.program,
        args=dict(job.args),
        envs={rank: {} for rank in job.args},
        logs_specs=DefaultLogsSpecs(log_dir=str(job.folder), tee=Std.OUT),
        duplicate_stdout_filters=[job.word] if job.word else None,
    )
    # It looks so often as not to be slow by the wait alone.
    result = context.wait(period=0.01)
    assert result is not None
    assert not result.is_failed()


def _with_coreutils(job: Job) -> None:
    """Pipe each stream through tee and sed."""
    script = f'file=$1 rank=$2; shift 2; "$@" | tee "$file" | sed {"-u" * job.at_once} "s/^/[rank$rank]:/"'
    started = [
        subprocess.Popen(["sh", "-c", script, "sh", job.folder / f"{rank}.log", str(rank), job.program, *args])
        for rank, args in job.args.items()
    ]
    for process in started:
        assert process.wait() == 0


_ASYNC: Final[dict[str, Callable[[Job], Awaitable[None]]]] = {AIOELASTIC: _with_aioelastic, ASYNCIO: _with_readline}
_BLOCKING: Final[dict[str, Callable[[Job], None]]] = {TORCH: _with_torch, FLOOR: _with_coreutils}
