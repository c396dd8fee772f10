"""What a rank has used is in its exit."""

from aioelastic import start_processes
from tests.helpers.programs import PYTHON, pythons

PEAK = 600 << 20
"""More than the process that runs the tests has: smaller figures are not told apart from its own."""

HUNGRY = f"x = bytearray({PEAK}); sum(range(10**6))"
"""Takes that much memory, and some processor time."""


async def test_a_ranks_exit_tells_peak_memory_and_processor_time() -> None:
    """Each rank has figures of its own; a peak below the supervisor's own size is not made up."""
    async with start_processes("hungry", PYTHON, pythons(HUNGRY, "pass")) as context:
        result = await context.wait()

    assert result is not None
    hungry, modest = result.exits[0], result.exits[1]
    assert hungry.peak_memory is not None
    assert hungry.cpu_time is not None
    assert modest.cpu_time is not None
    assert PEAK < hungry.peak_memory < PEAK + (100 << 20)
    assert hungry.cpu_time > modest.cpu_time > 0
    assert modest.peak_memory is None
