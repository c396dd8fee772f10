"""Tests of a program with many processes, by the fixture ``start_processes`` of aioelastic's pytest plugin.

    pip install . pytest pytest-asyncio         # in a clone of the repository
    python -m pytest docs/examples/pytest_suite

Nothing here ends a process: the plugin does, whatever becomes of a test. When one fails, its report shows the last
lines of each process. To see that, change a number in an assertion.
"""

import sys
from pathlib import Path

import pytest

from aioelastic import PContext, Std
from aioelastic.pytest_plugin import StartProcesses

PROGRAM = Path(__file__).with_name("counter.py")


@pytest.fixture
async def server(start_processes: StartProcesses) -> PContext:
    """Start a server; it ends after the test."""
    return await start_processes("server", sys.executable, args={0: (PROGRAM, "serve")})


@pytest.fixture
async def port(server: PContext) -> int:
    """Wait until the server listens."""
    async for line in server.lines(from_start=True):
        if line.text.startswith("listening on port "):
            return int(line.text.split()[-1])
    pytest.fail("the server has ended, and was not yet listening")


async def test_no_count_is_lost(start_processes: StartProcesses, port: int) -> None:
    """Of two clients that count the same at the same time, one is told the sum."""
    args = dict.fromkeys(range(2), (PROGRAM, "count", port, "apples", 40))
    clients = await start_processes("client", sys.executable, args=args)

    result = await clients.wait(timeout=30)

    assert result is not None
    result.raise_for_failures()
    answers = [int(line.text) async for line in clients.lines(stream=Std.OUT, from_start=True)]
    assert max(answers) == 80


async def test_the_server_tells_its_count_at_the_end(
    start_processes: StartProcesses, server: PContext, port: int
) -> None:
    """A server that is asked to end says how much it has counted."""
    client = await start_processes("client", sys.executable, args={0: (PROGRAM, "count", port, "pears", 3)})
    await client.wait(timeout=30)

    await server.close()

    assert "counted 3" in [line.text async for line in server.lines(from_start=True)]


async def test_a_client_fails_without_a_server(start_processes: StartProcesses) -> None:
    """A client that finds no server, as on port 1, says so and fails."""
    client = await start_processes("client", sys.executable, args={0: (PROGRAM, "count", 1, "pears", 3)})

    result = await client.wait(timeout=30)

    assert result is not None
    assert "ConnectionRefusedError" in result.failures[0].message
