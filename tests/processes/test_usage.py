"""What a rank has used is in its exit."""

import json
import resource

import pytest

from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.programs import PYTHON

SUPERVISOR = """
hungry = f"x = bytearray({sys.argv[3]}); sum(range(10**6))"

async def main():
    programs = {0: ("-c", hungry), 1: ("-c", "pass")}
    async with start_processes("hungry", sys.argv[2], programs) as context:
        result = await context.wait()
    print(json.dumps([(each.peak_memory, each.cpu_time) for _, each in sorted(result.exits.items())]))

run(main)
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_a_ranks_exit_tells_peak_memory_and_processor_time(loop: str) -> None:
    """Each rank has figures of its own; a peak below the supervisor's own size is not made up."""
    # More than the supervisor's own, to which the kernel adds ours: it was started from here.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 + (200 << 20)

    hungry, modest = json.loads(run_driver(SUPERVISOR, loop, PYTHON, peak))

    assert peak < hungry[0] < peak + (100 << 20)
    assert modest[0] is None
    assert hungry[1] > modest[1] > 0
