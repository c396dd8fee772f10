"""A group's life on processes that exist in memory only."""

import asyncio
import logging
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import pytest

from aioelastic import ExitCause, GroupState
from aioelastic._guard.guard import Unwatched
from aioelastic._logs.group_logs import GroupLogs, StreamName
from aioelastic._logs.routes import RankRoutes, Route, Way
from aioelastic._supervision import group as group_module
from aioelastic._supervision import ladder as ladder_module
from aioelastic._supervision.events import EventHub
from aioelastic._supervision.group import Group, GroupPlan
from tests.helpers.fakes import DEAF, POLITE, UNKILLABLE, FakeRank, FakeTable
from tests.helpers.waiting import until

TERM, CONT, KILL = int(signal.SIGTERM), int(signal.SIGCONT), int(signal.SIGKILL)


@pytest.fixture(autouse=True)
def _short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (ladder_module, group_module):
        monkeypatch.setattr(module, "REAP_TIMEOUT", 0.5)
    monkeypatch.setattr(ladder_module, "_LOOK_AGAIN", 0.1)


class World:
    """A group of fake ranks, and what it stands on.

    Attributes:
        table: The processes.
        ranks: The started ranks.
        group: The group.
        is_stuck: A rank's start is, for ever.
    """

    def __init__(
        self,
        fatal: Mapping[int, frozenset[int]],
        *,
        grace: float,
        fails_at: int | None = None,
        stuck_at: int | None = None,
    ) -> None:
        self.table = FakeTable()
        self.ranks: dict[int, FakeRank] = {}
        self._fatal = fatal
        self._fails_at = fails_at
        self._stuck_at = stuck_at
        self.is_stuck = asyncio.Event()
        plan = GroupPlan(
            name="fake",
            nprocs=len(fatal),
            death_signal=TERM,
            shutdown_timeout=grace,
            drain_timeout=0.1,
            error_files={},
            stderr_files={},
        )
        inherit = RankRoutes(stdout=Route(way=Way.INHERIT), stderr=Route(way=Way.INHERIT))
        logs = GroupLogs([inherit] * len(fatal), dict.fromkeys(fatal, ""), {"stdout": (), "stderr": ()})
        self.group = Group(plan, logs, self._start, self.table, Unwatched(), EventHub())

    async def _start(self, rank: int, _stdio: Mapping[StreamName, int | None], on_exit: Callable[[], None]) -> FakeRank:
        if rank == self._fails_at:
            raise FileNotFoundError(f"no program for rank {rank}")
        if rank == self._stuck_at:
            self.is_stuck.set()
            await asyncio.Event().wait()
        self.ranks[rank] = FakeRank(self.table, rank, fatal=self._fatal[rank], on_exit=on_exit)
        return self.ranks[rank]


@asynccontextmanager
async def running(*fatal: frozenset[int], grace: float = 0.1) -> AsyncIterator[World]:
    """Give a started group of ranks that die of these signals."""
    world = World(dict(enumerate(fatal)), grace=grace)
    await world.group.started()
    yield world
    await world.group.stop(KILL, 0)


async def within(seconds: float, action: Awaitable[object]) -> None:
    """Do something that has to be over in time."""
    began = time.monotonic()
    with suppress(FileNotFoundError):
        await action
    assert time.monotonic() - began < seconds


async def test_an_unkillable_rank_is_in_the_result_and_in_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    """The group ends within its bounds, names the process, and reports the ranks that did end."""
    async with running(POLITE, UNKILLABLE) as world:
        await within(3, world.group.stop(TERM, 0.1))
        outcome = world.group.outcome.result()

        assert outcome.survivors == {1: [2000]}
        assert list(outcome.exits) == [0]
        assert world.group.state is GroupState.STOPPED
    assert [each.levelno for each in caplog.records] == [logging.WARNING]
    assert "rank 1" in caplog.text
    assert "2000" in caplog.text


async def test_an_unkillable_rank_does_not_hold_back_another_ones_failure() -> None:
    """A group ends by itself, too, when one rank fails and another cannot be stopped."""
    async with running(POLITE, UNKILLABLE) as world:
        world.ranks[0].exit(3)
        await within(3, asyncio.wait([world.group.outcome]))
        outcome = world.group.outcome.result()

        assert list(outcome.failures) == [0]
        assert outcome.survivors == {1: [2000]}
        assert world.group.state is GroupState.FAILED


async def test_many_unkillable_ranks_share_the_bounds_of_a_start_that_failed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """When a rank cannot start, those before it that cannot be killed are named, within one bound for all."""
    world = World({**dict.fromkeys(range(20), UNKILLABLE), 20: POLITE}, grace=60, fails_at=20)

    await within(3, world.group.started())
    assert len(caplog.records) == 20
    with pytest.raises(FileNotFoundError, match="rank 20"):
        await world.group.started()


async def test_a_status_that_nobody_knows_is_said_to_be_unknown() -> None:
    """A rank reaped elsewhere without a copy of its status has no exit code, and is a failure that says so."""
    async with running(POLITE, POLITE) as world:
        world.ranks[1].exit(None, reaped_elsewhere=True)
        await asyncio.wait([world.group.outcome])
        outcome = world.group.outcome.result()

        assert (outcome.exits[1].exitcode, outcome.exits[1].cause) == (None, ExitCause.UNKNOWN)
        assert outcome.exits[1].reaped_elsewhere
        assert list(outcome.failures) == [1]
        assert "taken by another part of the program" in outcome.failures[1].message


async def test_exits_are_in_the_order_in_which_they_were_seen() -> None:
    """The order of the exits, not of the ranks, is kept, and puts the root cause first."""
    async with running(POLITE, POLITE, POLITE) as world:
        for rank in (2, 0, 1):
            world.ranks[rank].exit(5)
        await asyncio.wait([world.group.outcome])
        outcome = world.group.outcome.result()

        assert list(outcome.exits) == [2, 0, 1]
        assert list(outcome.failures) == [2, 0, 1]


async def test_an_exit_right_before_the_signal_is_the_ranks_own() -> None:
    """A rank that ends after the look and before the signal is not said to have been stopped."""
    async with running(POLITE, POLITE) as world:
        world.ranks[0].on_signal = lambda _: world.ranks[1].exit(4)
        await world.group.stop(TERM, 60)
        outcome = world.group.outcome.result()

        assert outcome.exits[0].cause is ExitCause.STOPPED
        assert outcome.exits[1].cause is ExitCause.ENDED
        assert list(outcome.failures) == [1]


async def test_a_rank_that_leaves_politely_does_not_make_a_success() -> None:
    """A group whose last rank ended with 0 only because it was stopped has not succeeded."""
    async with running(POLITE, POLITE) as world:
        world.ranks[0].exit(0)
        world.ranks[1].on_signal = lambda _: world.ranks[1].exit(0)
        await world.group.stop(TERM, 60)

        assert world.group.outcome.result().exits[1].exitcode == 0
        assert world.group.state is GroupState.STOPPED


async def test_a_different_second_signal_is_passed_on_while_the_group_ends() -> None:
    """The ranks get it at once, and the same signal again only once."""
    async with running(DEAF, grace=60) as world:
        world.group.request_stop(TERM, 60)
        await until(lambda: world.ranks[0].signals)
        world.group.request_stop(TERM, 60)
        world.group.request_stop(int(signal.SIGINT), 60)
        await until(lambda: len(world.ranks[0].signals) > 3)
        assert world.ranks[0].signals == [TERM, CONT, signal.SIGINT, CONT]


async def test_an_ended_group_never_signals_again() -> None:
    """Once a group is gone its numbers may be a stranger's: closing again looks at nothing and sends nothing."""
    async with running(POLITE) as world:
        world.ranks[0].exit(0)
        await asyncio.wait([world.group.outcome])
        world.table.add(world.ranks[0].pid + 1, world.ranks[0].pid, POLITE)
        looks = world.table.looks
        await world.group.stop(int(signal.SIGINT), 0)
        await world.group.stop(KILL, 0)

        assert (world.ranks[0].signals, world.table.looks) == ([], looks)


async def test_a_stop_while_ranks_start_ends_those_that_were_started() -> None:
    """No rank is started after the request, and those before it are stopped."""
    world = World({0: POLITE, 1: POLITE, 2: POLITE}, grace=60)
    asyncio.get_running_loop().call_soon(world.group.request_stop, TERM, 60)
    world.group.request_stop(TERM, 60)
    await world.group.started()
    await asyncio.wait([world.group.outcome])

    assert world.table.sessions == {}
    assert world.group.state is GroupState.STOPPED


@pytest.mark.parametrize("grace", [0, 0.02])
async def test_a_stop_ends_a_start_that_is_stuck(grace: float) -> None:
    """A rank whose start does not come to its end is given up at the deadline, or by a second, quicker stop."""
    world = World({0: POLITE, 1: POLITE, 2: POLITE}, grace=60, stuck_at=1)
    await world.is_stuck.wait()
    world.group.request_stop(TERM, grace or 60)
    if not grace:
        world.group.request_stop(KILL, 60)
    await world.group.started()
    async with asyncio.timeout(10):
        await asyncio.wait([world.group.outcome])

    assert world.table.sessions == {}
    assert list(world.ranks) == [0]
    assert world.group.state is GroupState.STOPPED


@pytest.mark.parametrize("steps", range(12))
async def test_the_end_of_the_loop_kills_the_group_wherever_it_stands(steps: int) -> None:
    """An owner cancelled at any of its awaits leaves no process, and whoever waits is let go."""
    world = World({0: DEAF, 1: DEAF}, grace=60)
    if steps > 6:
        asyncio.get_running_loop().call_soon(world.group.request_stop, TERM, 60)
    for _ in range(steps % 6 + 1):
        await asyncio.sleep(0)
    world.group._owner.cancel()
    await asyncio.wait([world.group._owner])

    assert world.table.sessions == {}
    assert world.group.outcome.cancelled()
    assert world.group.state is GroupState.STOPPED


async def test_a_group_of_no_ranks_succeeds_at_once() -> None:
    """There is nothing to wait for, and nothing that could have failed."""
    async with running() as world:
        await within(3, asyncio.wait([world.group.outcome]))
        assert world.group.state is GroupState.SUCCEEDED
