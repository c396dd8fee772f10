"""A pipeline of stages finds the words that Python's own sources use most.

    python docs/examples/pipeline.py              # ^C ends whatever runs, and says so
    python docs/examples/pipeline.py --break      # a stage fails for good, which ends what runs beside it

Each stage is a group of ranks, run by an agent. ``deal`` lists the sources of a folder (the standard library's, unless
another is given) for three shards. ``count``, a rank for each shard, and ``weigh``, a command, run at the same time.
``merge`` waits for both. Shard 1 has a hiccup at first, so ``count`` is run again. What a stage has found goes to the
next one as the values of its functions, or in files.
"""

import argparse
import ast
import asyncio
import os
import re
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from aioelastic import (
    ChildFailedError,
    DefaultLogsSpecs,
    GroupState,
    LocalElasticAgent,
    RunResult,
    Std,
    WorkerSpec,
    forward_signals,
)

SHARDS = 3


def deal(folder: Path, work: Path) -> int:
    """Be the rank of the first stage: list the sources, for shards of about the same size; give their number."""
    sources = sorted(folder.glob("*.py"), key=lambda path: path.stat().st_size)
    if not sources:
        raise FileNotFoundError(f"there are no Python sources in {folder}")
    for shard in range(SHARDS):
        (work / f"shard-{shard}").write_text("".join(f"{path}\n" for path in sources[shard::SHARDS]))
    return len(sources)


def count(work: Path, break_always: bool) -> Counter[str]:
    """Be a rank of the second stage: count the words in the sources of one shard."""
    shard, attempt = int(os.environ["RANK"]), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    sources = (work / f"shard-{shard}").read_text().splitlines()
    print(f"{len(sources)} sources, attempt {attempt}", flush=True)
    if shard == 1 and (attempt == 0 or break_always):
        raise OSError(f"shard {shard} has a hiccup")
    return sum((Counter(re.findall(r"\w{5,}", Path(source).read_text("latin-1"))) for source in sources), Counter())


def merge(counters: list[Counter[str]]) -> list[tuple[str, int]]:
    """Be the rank of the last stage: add up what the shards have counted."""
    return sum(counters, Counter()).most_common(5)


class StageStoppedError(Exception):
    """A signal has stopped a stage, so the next one has nothing to begin with."""


def story(agent: LocalElasticAgent) -> str:
    """Say in a line how a stage went, with the root cause of each attempt that failed."""
    words = [agent.state.value]
    for attempt in agent.attempts:
        for rank, failure in list(attempt.failures.items())[:1]:
            words.append(f"attempt {attempt.number}: rank {rank}: {failure.message.splitlines()[-1]}")
    return "; ".join(words)


class Pipeline:
    """Runs stages, and remembers how each of them ended."""

    def __init__(self, logs: Path) -> None:
        self.summary: list[str] = []
        self._logs = logs

    async def stage(
        self, name: str, entrypoint: str | Callable[..., Any], *args: object, ranks: int = 1, restarts: int = 0
    ) -> RunResult:
        """Run a stage to its end.

        Raises:
            ChildFailedError: It failed, and has no restart left.
            StageStoppedError: It was stopped by ^C, or by ``kill``.
        """
        spec = WorkerSpec(
            entrypoint=entrypoint,
            args=args,
            role=name,
            local_world_size=ranks,
            max_restarts=restarts,
            start_method="forkserver",  # of functions: a copy of a clean process, quicker than a new one
            logs_specs=DefaultLogsSpecs(log_dir=self._logs / name, redirects=Std.ERR, tee=Std.OUT),
            shutdown_timeout=5,
        )
        agent = LocalElasticAgent(spec)
        begin = time.monotonic()
        try:
            # In each stage: one ^C reaches all those that run.
            async with forward_signals(agent):
                result = await agent.run()
        finally:
            self.summary.append(f"{name:6} {time.monotonic() - begin:5.1f} s  {story(agent)}")
        result.raise_for_failures()
        if result.state is GroupState.STOPPED:
            raise StageStoppedError(name)
        return result

    async def run(self, folder: Path, work: Path, *, break_always: bool) -> None:
        """Run all stages. When one of two that run at the same time fails, the other one is stopped."""
        dealt = await self.stage("deal", deal, folder, work)
        async with asyncio.TaskGroup() as both:
            counting = both.create_task(self.stage("count", count, work, break_always, ranks=SHARDS, restarts=1))
            both.create_task(self.stage("weigh", "sh", "-c", f"cat '{work}'/shard-* | xargs cat | wc -c"))
        counters = list(counting.result().return_values.values())
        merged = await self.stage("merge", merge, counters)
        print(f"the words used most in {dealt.return_values[0]} sources: {dict(merged.return_values[0])}")


async def main(options: argparse.Namespace) -> int:
    """Run the pipeline, say how it went, and give the exit status."""
    status = 0
    work = Path(tempfile.mkdtemp(prefix="aioelastic-pipeline-"))
    pipeline = Pipeline(work / "logs")
    try:
        await pipeline.run(options.folder, work, break_always=options.break_always)
    except* StageStoppedError:
        status = 130
    except* ChildFailedError as failed:
        status = 1
        for error in failed.exceptions:
            print(f"\n{error}\n")
    print("\n".join(["Summary:", *pipeline.summary]))
    print(f"Logs and files: {work}")
    return status


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Find the words that the Python sources of a folder use most.")
    parser.add_argument("folder", type=Path, nargs="?", default=Path(ast.__file__).parent)
    parser.add_argument("--break", dest="break_always", action="store_true", help="have shard 1 fail every time")
    sys.exit(asyncio.run(main(parser.parse_args())))
