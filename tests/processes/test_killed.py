"""The end of a process that was killed because its start is given up."""

import asyncio

import pytest

from aioelastic._processes import killed
from tests.helpers.fakes import POLITE, UNKILLABLE, FakeRank, FakeTable


async def test_a_process_that_cannot_be_killed_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """After a bound a warning names it; whoever is cancelled meanwhile is let go then, too."""
    monkeypatch.setattr(killed, "REAP_TIMEOUT", 0.02)
    rank = FakeRank(FakeTable(), 0, fatal=UNKILLABLE)
    await killed.settle_killed(rank)
    waiting = asyncio.create_task(killed.settle_killed(rank))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.wait([waiting])

    assert waiting.cancelled()
    assert [f"pid {rank.pid}," in record.getMessage() for record in caplog.records] == [True, True]


async def test_a_process_that_ends_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """Then there is nothing to be said."""
    rank = FakeRank(FakeTable(), 0, fatal=POLITE)
    asyncio.get_running_loop().call_soon(rank.exit, -9)
    await killed.settle_killed(rank)

    assert rank.has_exited()
    assert not caplog.records
