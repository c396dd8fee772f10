"""The termination ladder on processes that exist in memory only, and a few that are real."""

import asyncio
import os
import signal
import subprocess
import time
from collections.abc import Collection, Iterator

import pytest

from aioelastic._processes.members import Member, signal_member
from aioelastic._processes.system_table import SystemTable
from aioelastic._supervision import ladder as ladder_module
from aioelastic._supervision.ladder import Ladder, StopOrder
from tests.helpers.fakes import DEAF, POLITE, UNKILLABLE, FakeRank, FakeTable
from tests.helpers.waiting import is_alive

TERM, CONT, KILL = int(signal.SIGTERM), int(signal.SIGCONT), int(signal.SIGKILL)


@pytest.fixture
def short_bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have SIGKILL's bound be short."""
    monkeypatch.setattr(ladder_module, "REAP_TIMEOUT", 0.5)
    monkeypatch.setattr(ladder_module, "_LOOK_AGAIN", 0.1)


@pytest.fixture
def stranger() -> Iterator[int]:
    """Give the pid of a real process that leads a session of its own and is no rank."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process.pid
        process.kill()


def order(number: int, grace: float) -> StopOrder:
    """Give an order whose deadline is so many seconds ahead."""
    return StopOrder(number, asyncio.get_running_loop().time() + grace)


def descent(
    table: FakeTable | SystemTable, *ranks: FakeRank, groups: Collection[str] = ()
) -> tuple[Ladder, list[tuple[int, int]]]:
    """Give a ladder, and the list of what it says it has sent."""
    told: list[tuple[int, int]] = []
    return Ladder(ranks, table, lambda rank, number: told.append((rank, number)), groups), told


async def test_a_polite_group_gets_the_signal_and_a_continue() -> None:
    """SIGCONT follows the signal, so that stopped processes hear it, and nothing else is sent."""
    table = FakeTable()
    rank = FakeRank(table, 0)
    ladder, told = descent(table, rank)

    assert await ladder.descend(order(TERM, 60)) == {}
    assert rank.signals == [TERM, CONT]
    assert told == [(0, TERM)]


async def test_a_deaf_group_gets_sigkill_after_the_grace() -> None:
    """The order is TERM, CONT, then KILL at the deadline and not before."""
    table = FakeTable()
    rank = FakeRank(table, 0, fatal=DEAF)
    ladder, told = descent(table, rank)
    began = time.monotonic()

    assert await ladder.descend(order(TERM, 0.2)) == {}
    assert rank.signals == [TERM, CONT, KILL]
    assert told == [(0, TERM), (0, KILL)]
    # uvloop's clock is that of its last turn, in whole milliseconds.
    assert time.monotonic() - began > 0.19


async def test_sigkill_needs_no_continue() -> None:
    """A group that is to be killed gets SIGKILL alone: it reaches stopped processes too."""
    table = FakeTable()
    rank = FakeRank(table, 0, fatal=DEAF)

    await descent(table, rank)[0].descend(order(KILL, 0))
    assert set(rank.signals) == {KILL}


@pytest.mark.usefixtures("short_bounds")
async def test_what_never_dies_is_named_within_the_bound() -> None:
    """Processes in uninterruptible sleep end the wait after the grace and one more bound, with their pids."""
    table = FakeTable()
    ranks = [
        FakeRank(table, 0, fatal=UNKILLABLE),
        FakeRank(table, 1),
        FakeRank(table, 2, children=[UNKILLABLE, POLITE]),
    ]
    began = time.monotonic()

    survivors = await descent(table, *ranks)[0].descend(order(TERM, 0.1))

    assert survivors == {0: [1000], 2: [3001]}
    assert time.monotonic() - began < 2
    assert ranks[0].signals.count(KILL) > 1


async def test_all_ranks_share_one_grace() -> None:
    """Many deaf ranks take no longer than one."""
    table = FakeTable()
    ranks = [FakeRank(table, number, fatal=DEAF) for number in range(50)]
    began = time.monotonic()

    assert await descent(table, *ranks)[0].descend(order(TERM, 0.2)) == {}
    assert 0.19 <= time.monotonic() - began < 1.5


async def test_a_step_reads_the_table_once_for_the_whole_group() -> None:
    """Fifty ranks that end on the signal cost two looks: before it and after it."""
    table = FakeTable()
    ranks = [FakeRank(table, number) for number in range(50)]

    await descent(table, *ranks)[0].descend(order(TERM, 60))
    assert table.looks == 2


async def test_a_group_that_is_gone_is_looked_at_once_and_sent_nothing() -> None:
    """No signal goes to ranks that left nothing behind."""
    table = FakeTable()
    rank = FakeRank(table, 0)
    rank.exit(0)
    ladder, told = descent(table, rank)

    assert await ladder.descend(order(TERM, 60)) == {}
    assert (table.looks, rank.signals, told) == (1, [], [])


async def test_a_child_is_signalled_although_its_leader_has_left() -> None:
    """Leftovers get the whole ladder, but the rank itself does not count as signalled."""
    table = FakeTable()
    rank = FakeRank(table, 0, children=[DEAF])
    rank.exit(0)
    ladder, told = descent(table, rank)

    assert await ladder.descend(order(TERM, 0.1)) == {}
    assert rank.signals == [TERM, CONT, KILL]
    assert told == []


async def test_a_child_that_stays_keeps_the_ladder_going() -> None:
    """A leader that leaves politely does not excuse a deaf child."""
    table = FakeTable()
    rank = FakeRank(table, 0, children=[DEAF])

    assert await descent(table, rank)[0].descend(order(TERM, 0.1)) == {}
    assert rank.signals == [TERM, CONT, KILL]
    assert table.sessions == {}


async def test_a_fork_that_slips_through_sigkill_is_killed_in_the_next_round() -> None:
    """SIGKILL is repeated until the table says that all are gone."""
    table = FakeTable()
    rank = FakeRank(table, 0, fatal=DEAF)

    def fork(number: int) -> None:
        if number == KILL and 1500 not in table.sessions and rank.signals.count(KILL) == 1:
            table.add(1500, rank.pid, DEAF)

    rank.on_signal = fork

    assert await descent(table, rank)[0].descend(order(KILL, 0)) == {}
    assert table.sessions == {}


async def test_what_left_the_session_gets_the_whole_ladder() -> None:
    """A daemon that bears the rank's token is signalled with the rank, waited for, and killed at the deadline."""
    table = FakeTable()
    rank = FakeRank(table, 0)
    table.add(4711, 4711, DEAF)
    table.tokens[4711] = "group.0"
    ladder, told = descent(table, rank, groups=["group"])

    assert await ladder.descend(order(TERM, 0.1)) == {}
    assert rank.signals == [TERM, CONT, KILL]
    assert told == [(0, TERM)]
    assert table.sessions == {}


async def test_what_left_the_session_of_another_group_is_left_alone() -> None:
    """A token of another group, or of this one when it does not sweep, is no reason for a signal."""
    table = FakeTable()
    table.add(4711, 4711, DEAF)
    table.tokens[4711] = "group.0"
    for number, groups in enumerate(([], ["other"])):
        assert await descent(table, FakeRank(table, number), groups=groups)[0].descend(order(KILL, 0)) == {}
    assert table.sessions == {4711: 4711}


async def test_another_signal_is_sent_while_the_first_is_waited_for() -> None:
    """A later request for another signal reaches who is left at once, and the deadline stays."""
    table = FakeTable()
    rank = FakeRank(table, 0, fatal=frozenset({int(signal.SIGQUIT), KILL}))
    stop = order(TERM, 60)
    rank.on_signal = lambda number: stop.hurry(stop.deadline, signal.SIGQUIT) if number == CONT else None

    await asyncio.wait_for(descent(table, rank)[0].descend(stop), 5)
    assert rank.signals[:3] == [TERM, CONT, signal.SIGQUIT]


async def test_hurrying_brings_sigkill_forward() -> None:
    """A deadline that is brought forward while the ladder waits takes effect at once."""
    table = FakeTable()
    rank = FakeRank(table, 0, fatal=DEAF)
    stop = order(TERM, 60)

    def hurry(number: int) -> None:
        if number == CONT:
            asyncio.get_running_loop().call_soon(stop.hurry, 0.0)

    rank.on_signal = hurry
    began = time.monotonic()

    assert await descent(table, rank)[0].descend(stop) == {}
    assert time.monotonic() - began < 5


async def test_a_later_deadline_does_not_prolong_the_grace() -> None:
    """Hurrying works in one direction only."""
    table = FakeTable()
    rank = FakeRank(table, 0, fatal=DEAF)
    stop = order(TERM, 0.2)
    stop.hurry(stop.deadline + 60)
    began = time.monotonic()

    assert await descent(table, rank)[0].descend(stop) == {}
    assert time.monotonic() - began < 5


async def test_a_leader_whose_number_was_recycled_is_left_alone(stranger: int) -> None:
    """When our leader has exited, a live leader of the same number is somebody else's, with all its session."""
    rank = FakeRank(FakeTable(), 0)
    rank.pid = stranger
    ladder, told = descent(SystemTable(), rank)

    assert await ladder.survey() == {0: [Member(stranger, stranger)]}
    rank._status.cancel()
    assert await ladder.descend(order(KILL, 0)) == {}
    assert (rank.signals, told) == ([], [])


async def test_what_a_rank_without_a_process_has_started_is_ended() -> None:
    """A rank that could not be started after all may have started something: its token is enough to reach that."""
    token = {**os.environ, "AIOELASTIC_RANK_TOKEN": "0123456789abcdef.7"}
    with subprocess.Popen(["sleep", "60"], env=token, start_new_session=True) as process:
        ladder, told = descent(SystemTable(), groups=["0123456789abcdef"])
        try:
            assert await ladder.descend(order(TERM, 20)) == {}
            assert process.wait(5) == -signal.SIGTERM
        finally:
            process.kill()
    assert told == []


def test_a_number_that_came_to_a_stranger_is_not_signalled(stranger: int) -> None:
    """A number that came to a process of another session, or to one that began later, is not signalled."""
    signal_member(Member(stranger, stranger + 1), signal.SIGKILL)
    signal_member(Member(stranger, 0, "0123456789abcdef.0", began=1), signal.SIGKILL)
    assert is_alive(stranger)


def test_a_member_gets_a_signal_that_has_no_name(stranger: int) -> None:
    """Real-time signals reach members that are signalled one by one."""
    signal_member(Member(stranger, stranger), signal.SIGRTMIN + 3)
    while is_alive(stranger):
        time.sleep(0.001)


async def test_waiting_for_processes_that_are_gone_returns_at_once() -> None:
    """Members that end before a handle is opened on them are not waited for."""
    with subprocess.Popen(["true"]) as process:
        process.wait()
    await asyncio.wait_for(SystemTable().wait_gone([process.pid]), 5)
