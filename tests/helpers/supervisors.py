"""Running whole groups: in the test's own loop, or in a supervisor process whose console the test holds."""

import subprocess
import textwrap
import time
from collections.abc import Callable
from typing import Any

from aioelastic import RunProcsResult, start_processes
from tests.helpers.drivers import driver_command
from tests.helpers.programs import PYTHON, pythons, shells
from tests.helpers.waiting import PATIENCE


async def run_shells(*scripts: str, **options: Any) -> RunProcsResult:
    """Run a group of ``sh`` named ``job`` to its result, one script per rank."""
    async with start_processes("job", "sh", args=shells(*scripts), **options) as context:
        result = await context.wait(timeout=60)
    assert result is not None
    return result


async def run_pythons(*programs: str, **options: Any) -> RunProcsResult:
    """Run a group of `PYTHON` named ``job`` to its result, one program per rank."""
    async with start_processes("job", PYTHON, args=pythons(*programs), **options) as context:
        result = await context.wait(timeout=60)
    assert result is not None
    return result


def supervisor(body: str, prelude: str = "") -> list[str]:
    """Give the command of a driver that runs the body of an async function, after a prelude at the module's level."""
    body = textwrap.indent(textwrap.dedent(body), "    ")
    return driver_command(f"{textwrap.dedent(prelude)}\nasync def main():\n{body}\nrun(main)\n", "asyncio")


def supervise(body: str, prelude: str = "", **options: Any) -> "subprocess.CompletedProcess[bytes]":
    """Run a supervisor to its end, its stdout and stderr on pipes unless asked otherwise."""
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    return subprocess.run(supervisor(body, prelude), check=False, timeout=60, **{**streams, **options})


def wait_until(sign: Callable[[], object], what: str = "a sign", pause: float = 0.005) -> None:
    """Wait until something is so, in a test without an event loop."""
    deadline = time.monotonic() + PATIENCE
    while not sign():
        assert time.monotonic() < deadline, f"{what} did not come within {PATIENCE} seconds"
        time.sleep(pause)
