"""A service runs the tool calls of an agent, each of them within bounds, and nothing of a call outlives it.

    python docs/examples/tool_agent.py

A tool is a command or a Python function, and runs in processes of its own. A call has a time limit, the agent is told
its last lines only, and so many calls run at once; the others wait for their turn. A call whose task is cancelled, or
whose time is over, is ended with all that it has started, daemons included. Here the agent is a script; a model would
name tools and arguments in the same way, and be told the same answers.
"""

import asyncio
import json
import os
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from aioelastic import RunProcsResult, Std, start_processes

FILE_LIMIT = 500
"""Blocks of 512 bytes that a file of a command may have, that with its output included: a disk is soon full of "y"."""


def largest(folder: str, count: int) -> dict[str, int]:
    """Find the largest files of a folder: a tool."""
    sizes = {path.name: path.stat().st_size for path in Path(folder).iterdir() if path.is_file()}
    print(f"{len(sizes)} files")
    return dict(sorted(sizes.items(), key=lambda item: -item[1])[:count])


TOOLS: dict[str, str | Callable[..., Any]] = {"shell": "sh", "largest": largest}


@dataclass(frozen=True)
class Call:
    """What an agent asks for."""

    tool: str
    arguments: tuple[object, ...]
    time_limit: float = 10.0


def answer_to(call: Call, result: RunProcsResult | None) -> dict[str, Any]:
    """Say how a call went, as an agent is told it."""
    if result is None:
        return {"status": f"timed out after {call.time_limit:g} s"}
    if failure := result.root_failure():
        error = failure.message if failure.traceback else f"exit code {failure.exitcode}"
        return {"status": "failed", "error": error}
    return {"status": "done", "value": result.return_values.get(0)}


class Tools:
    """Runs calls.

    Args:
        logs: A folder for what they print.
        at_once: How many of them may run at the same time.
        lines: How many lines of each stream an agent is told: the last ones.
        grace: Seconds that a call has for its end after SIGTERM.
    """

    def __init__(self, logs: str, *, at_once: int = 2, lines: int = 3, grace: float = 0.3) -> None:
        self._logs = logs
        self._places = asyncio.Semaphore(at_once)
        self._lines = lines
        self._grace = grace

    async def call(self, call: Call) -> dict[str, Any]:
        """Run a call, and give what an agent is told; when it returns or raises, nothing of the call is left."""
        if call.tool not in TOOLS:
            return {"status": "failed", "error": f"there is no tool {call.tool!r}"}
        entrypoint, arguments = TOOLS[call.tool], call.arguments
        if entrypoint == "sh":
            arguments = "-c", f"ulimit -f {FILE_LIMIT}\n{arguments[0]}"
        # The time begins when it has a place: what others take is not its own.
        async with (
            self._places,
            start_processes(
                call.tool,
                entrypoint,
                args={0: arguments},
                start_method="forkserver",  # of functions: a copy of a clean process, quicker than a new one
                log_dir=self._logs,
                redirects=Std.ALL,
                shutdown_timeout=self._grace,
            ) as context,
        ):
            result = await context.wait(call.time_limit)
        output = [line.text async for line in context.lines(last=self._lines)]
        return {**answer_to(call, result), "output": output}


NAP = str(100_000 + os.getpid())
"""Seconds that the processes sleep that would like to outlive their call; nobody else's do."""

DAEMONS = f"trap '' TERM; setsid sleep {NAP} & (sleep {NAP} & sleep {NAP}) & echo begun; sleep {NAP}"

SCRIPT = [
    [
        Call("shell", ("wc -l /etc/passwd",)),
        Call("largest", ("/etc", 2)),
        Call("largest", ("/no/such/folder", 2)),
        Call("browse", ("https://example.org",)),
        Call("shell", ("seq 10000; echo that was all; exit 3",)),
        Call("shell", ("yes",)),
    ],
    [Call("shell", (DAEMONS,), time_limit=0.5)],
]
"""What the agent asks for, turn by turn."""


def count_sleepers() -> int:
    """Count the processes of `DAEMONS`, whoever their parents are."""
    return sum(each.info["cmdline"] == ["sleep", NAP] for each in psutil.process_iter(["cmdline"]))


async def main() -> None:
    """Be the agent: take turns, and think better of the last call."""
    with tempfile.TemporaryDirectory(prefix="aioelastic-tools-") as logs:
        tools = Tools(logs)
        for number, turn in enumerate(SCRIPT):
            print(f"turn {number}")
            for call, answer in zip(turn, await asyncio.gather(*map(tools.call, turn)), strict=True):
                print(f"  {call.tool} {call.arguments}\n    {json.dumps(answer)}")
        print(f"processes left of the call that timed out: {count_sleepers()}")
        calling = asyncio.create_task(tools.call(Call("shell", (DAEMONS,))))
        await asyncio.wait([calling], timeout=0.5)
        calling.cancel()
        await asyncio.wait([calling])
        print(f"processes left of the call that was cancelled: {count_sleepers()}")


if __name__ == "__main__":
    asyncio.run(main())
