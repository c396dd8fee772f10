"""A user's test suite, with the fixture of the plugin."""

from typing import assert_type

from aioelastic import PContext, RunProcsResult, Std
from aioelastic.pytest_plugin import StartProcesses


async def test_a_worker_ends_well(start_processes: StartProcesses) -> None:
    """The fixture is called as the function is."""
    context = await start_processes("job", "true", args={0: (), 1: ()}, tee=Std.ALL)
    assert_type(context, PContext)
    result = await context.wait()

    assert_type(result, RunProcsResult)
    assert not result.is_failed()


async def test_a_block(start_processes: StartProcesses) -> None:
    """It is entered as the function is."""
    async with start_processes("job", "true", args={0: ()}) as context:
        assert_type(context, PContext)
