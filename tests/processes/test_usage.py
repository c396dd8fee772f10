"""What a rank has used: known between its exit and its being reaped."""

import asyncio
import os
import select
import subprocess
import sys

from aioelastic import start_processes
from aioelastic._processes.usage import usage_of_zombie
from tests.helpers.programs import PYTHON, pythons

PEAK = 600 << 20
"""More than the process that runs the tests has: smaller figures are not told apart from its own."""

HUNGRY = f"x = bytearray({PEAK}); sum(range(10**6))"
"""Takes that much memory, and some processor time."""


def test_usage_is_known_from_the_exit_until_the_reaping() -> None:
    """A running process has no final figures, a zombie has, and a reaped one has none any more."""
    process = subprocess.Popen([PYTHON, "-c", f"input(); {HUNGRY}"], stdin=subprocess.PIPE, stdout=subprocess.DEVNULL)
    handle = os.pidfd_open(process.pid)
    try:
        running = usage_of_zombie(handle)
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.close()
        select.select([handle], [], [], 20)
        ended = usage_of_zombie(handle)
        process.wait()
        reaped = usage_of_zombie(handle)
    finally:
        os.close(handle)

    assert running is None
    assert ended is not None
    assert ended.peak_memory is not None
    assert PEAK < ended.peak_memory < PEAK + (100 << 20)
    assert ended.cpu_time > 0
    assert reaped is None


async def test_a_ranks_exit_tells_peak_memory_and_processor_time_where_known() -> None:
    """Each rank has figures of its own; only asyncio's threads of Python 3.11 may reap before they are read."""
    async with start_processes("hungry", PYTHON, pythons(HUNGRY, "pass")) as context:
        result = await context.wait()

    assert result is not None
    hungry, modest = result.exits[0], result.exits[1]
    if sys.version_info >= (3, 12) or not isinstance(asyncio.get_running_loop(), asyncio.BaseEventLoop):
        assert hungry.peak_memory is not None
        assert modest.cpu_time is not None
    if hungry.peak_memory is not None:
        assert hungry.peak_memory > PEAK
        assert hungry.cpu_time is not None
        assert hungry.cpu_time > 0
    # Figures below the supervisor's own size are not made up.
    assert modest.peak_memory is None
