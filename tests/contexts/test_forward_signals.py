"""Signals to the program that become a close of its group."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from aioelastic import (
    ContextStateError,
    DefaultLogsSpecs,
    ExitCause,
    ForwardedSignals,
    GroupState,
    SpecificationError,
    SpecificationTypeError,
    SubprocessContext,
    forward_signals,
    start_processes,
)
from tests.helpers import function_worlds as worlds
from tests.helpers.function_groups import FORK_WARNING, METHODS, all_ready, ready
from tests.helpers.groups import shell_group, written
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import is_alive, until, until_written

ENDING: Final = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT]
"""What is forwarded unless asked otherwise."""

ANSWERS: Final = (
    'for each in TERM INT HUP QUIT USR1 USR2 RTMIN+3; do trap "echo heard $each; exit 0" $each; done;'
    "echo ready; while :; do sleep 0.05; done"
)
"""Leaves at the first signal, and says which."""

COUNTS: Final = (
    'for each in TERM INT HUP QUIT; do trap "echo heard $each" $each; done; echo ready; while :; do sleep 0.05; done'
)
"""Says of each signal that it came, and stays."""


def send(number: int) -> None:
    """Send this program a signal, and have it seen."""
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    """Fail a test after which any handler is another one than before."""
    before = handlers()
    yield
    assert handlers() == before


def handlers() -> dict[int, Any]:
    """Give the handlers of all signals."""
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


@pytest.mark.parametrize("number", ENDING)
async def test_each_rank_gets_exactly_the_signal(tmp_path: Path, number: signal.Signals) -> None:
    """The first signal ends the group as a close with it does, the waiting goes on to the result, and it is told."""
    async with shell_group(tmp_path, ANSWERS, ANSWERS) as context, forward_signals(context) as forwarded:
        assert not forwarded.received
        send(number)
        result = await context.wait(timeout=20)

        assert result is not None
        assert [written(context, rank) for rank in (0, 1)] == [f"ready\nheard {number.name[3:]}\n"] * 2
        assert {each.cause for each in result.exits.values()} == {ExitCause.STOPPED}
        assert context.state is GroupState.STOPPED
    assert forwarded.received == (number,)
    assert repr(forwarded) == f"<ForwardedSignals: {number.name}>"


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.filterwarnings(FORK_WARNING)
async def test_functions_get_it_too(tmp_path: Path, method: str) -> None:
    """A function rank of any start method sees the signal, once."""
    told = tmp_path / "told"
    args = {0: (ready(tmp_path, 0), str(told), signal.SIGQUIT)}
    async with (
        start_processes("job", worlds.tell_signal, args, start_method=method) as context,
        forward_signals(context) as forwarded,
    ):
        await all_ready(tmp_path, [0])
        send(signal.SIGQUIT)
        assert await context.wait(timeout=20) is not None

    assert told.exists()
    assert forwarded.received == (signal.SIGQUIT,)


@pytest.mark.parametrize("number", [signal.SIGUSR1, signal.SIGUSR2, signal.SIGRTMIN + 3])
async def test_others_can_be_asked_for(tmp_path: Path, number: signal.Signals) -> None:
    """Exactly those asked for are forwarded, real-time ones too; the rest of the handlers are not touched."""
    before = handlers()
    async with shell_group(tmp_path, ANSWERS) as context, forward_signals(context, number, number) as forwarded:
        assert [each for each, handler in handlers().items() if handler != before[each]] == [number]
        send(number)
        assert await context.wait(timeout=20) is not None

        assert written(context, 0).startswith("ready\nheard ")
    assert forwarded.received == (number,)


async def test_the_contexts_grace_follows(tmp_path: Path) -> None:
    """Ranks that stay have the context's ``shutdown_timeout`` from the signal on, then they are killed."""
    async with shell_group(tmp_path, COUNTS, shutdown_timeout=0.5) as context, forward_signals(context):
        began = time.monotonic()
        send(signal.SIGINT)
        result = await context.wait(timeout=20)

        assert 0.49 <= time.monotonic() - began < 5
        assert result is not None
        assert result.exits[0].signal == "SIGKILL"
        assert written(context, 0) == "ready\nheard INT\n"


@pytest.mark.parametrize("second", ENDING)
async def test_a_second_one_kills_at_once(tmp_path: Path, second: signal.Signals) -> None:
    """Whichever it is, the ranks do not see it: they are killed, long before their grace is over."""
    async with shell_group(tmp_path, COUNTS, COUNTS, shutdown_timeout=60) as context:
        async with forward_signals(context) as forwarded:
            send(signal.SIGINT)
            for rank in (0, 1):
                await until_written(context.stdouts[rank], "heard INT")
            began = time.monotonic()
            send(second)
            result = await context.wait(timeout=20)

        assert time.monotonic() - began < 2
        assert result is not None
        assert {each.signal for each in result.exits.values()} == {"SIGKILL"}
        assert [written(context, rank) for rank in (0, 1)] == ["ready\nheard INT\n"] * 2
    assert forwarded.received == (signal.SIGINT, second)


async def test_signals_at_the_same_time(tmp_path: Path) -> None:
    """A burst, before the loop gets to any of it, is a first one and more: the group is gone at once."""
    async with shell_group(tmp_path, COUNTS, shutdown_timeout=60) as context:
        async with forward_signals(context) as forwarded:
            for number in ENDING * 5:
                send(number)
            result = await asyncio.wait_for(context.wait(), 5)

        assert result is not None
        assert result.exits[0].signal == "SIGKILL"
    assert forwarded.received == tuple(ENDING * 5)


async def test_it_joins_a_stop_under_way(tmp_path: Path) -> None:
    """In a group that ends already a signal reaches the ranks as well, and a second one kills."""
    async with shell_group(tmp_path, COUNTS, shutdown_timeout=60) as context, forward_signals(context):
        closing = asyncio.create_task(context.close())
        await until_written(context.stdouts[0], "heard TERM")
        send(signal.SIGINT)
        await until_written(context.stdouts[0], "heard INT")
        send(signal.SIGINT)
        await asyncio.wait_for(closing, 5)

        assert written(context, 0) == "ready\nheard TERM\nheard INT\n"


async def test_without_a_signal_nothing_happens(tmp_path: Path) -> None:
    """Entering and leaving do not touch the group."""
    async with shell_group(tmp_path, SLEEP) as context:
        async with forward_signals(context) as forwarded:
            pass

        assert await context.wait(timeout=0.05) is None
        assert is_alive(context.pids()[0])
        assert forwarded.received == ()
        assert repr(forwarded) == "<ForwardedSignals: none>"


async def test_a_context_that_has_ended_is_left_alone(tmp_path: Path) -> None:
    """A signal after the result is noted and changes nothing of it."""
    async with shell_group(tmp_path, "exit 0") as context, forward_signals(context) as forwarded:
        result = await context.wait(timeout=20)
        for _ in range(2):
            send(signal.SIGTERM)

        assert await context.wait() is result
        assert context.state is GroupState.SUCCEEDED
    assert forwarded.received == (signal.SIGTERM, signal.SIGTERM)


def new_context(nprocs: int) -> SubprocessContext:
    """Make a group that is not started."""
    return SubprocessContext("job", "sh", shells(*[SLEEP] * nprocs), None, DefaultLogsSpecs(log_dir=os.devnull))


async def test_a_context_that_has_not_started_does_not_start() -> None:
    """After a signal its start is refused."""
    context = new_context(1)
    async with forward_signals(context) as forwarded:
        send(signal.SIGTERM)
        await until(lambda: context.state is GroupState.STOPPED)
        with pytest.raises(ContextStateError, match="closed"):
            await context.start()

    assert forwarded.received == (signal.SIGTERM,)
    assert context.pids() == {}


@pytest.mark.parametrize("times", [1, 2, 3])
@pytest.mark.half
async def test_a_start_under_way_is_given_up(times: int) -> None:
    """Whenever it comes, the start raises once everything is reaped; where the start was faster, the group ends."""
    started = 0
    for steps in range(0, 120, 2):
        context = new_context(4)
        async with forward_signals(context) as forwarded:
            starting = asyncio.create_task(context.start())
            for _ in range(steps):
                await asyncio.sleep(0)
            for _ in range(times):
                send(signal.SIGINT)
            await asyncio.wait([starting])
            if starting.exception() is None:
                started += 1
                await context.wait(timeout=20)
            else:
                assert isinstance(starting.exception(), ContextStateError)
            assert not any(is_alive(pid) for pid in context.pids().values())
        assert forwarded.received == (signal.SIGINT,) * times
    assert started < 60


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (signal.SIGKILL, "SIGKILL cannot be forwarded: the system"),
        (9, "SIGKILL cannot"),
        (signal.SIGSTOP, "SIGSTOP cannot"),
        (signal.SIGSEGV, "SIGSEGV cannot be forwarded: it is a fault"),
        (signal.SIGCONT, "ends no process"),
        (signal.SIGTSTP, "ends no process"),
        (0, "no signal here"),
        (-1, "no signal here"),
        (1000, "no signal here"),
    ],
)
async def test_what_cannot_be_forwarded_is_refused(number: Any, words: str) -> None:
    """The call itself raises, before anything is installed, whatever else is asked for."""
    before = handlers()
    with pytest.raises(SpecificationError, match=words):
        forward_signals(new_context(1), signal.SIGTERM, number)

    assert handlers() == before


@pytest.mark.parametrize("number", ["SIGTERM", True, None, 15.0, [signal.SIGTERM], signal.SIG_IGN.name])
async def test_what_is_no_signal_is_refused(number: Any) -> None:
    """Names, lists and truth values are of the wrong type."""
    with pytest.raises(SpecificationTypeError, match=r"such as signal\.SIGTERM"):
        forward_signals(new_context(1), number)


@pytest.mark.parametrize("context", [None, "job", signal.SIGTERM, start_processes])
async def test_what_is_no_context_is_refused(context: Any) -> None:
    """The context comes first, and whatever else is there is named by its type."""
    with pytest.raises(SpecificationTypeError, match="must be a PContext"):
        forward_signals(context, signal.SIGTERM)


async def test_it_is_entered_once() -> None:
    """A second ``async with`` of the same object is an error that says what to do."""
    forwarding = forward_signals(new_context(1))
    async with forwarding:
        with pytest.raises(ContextStateError, match="call it again"):
            await forwarding.__aenter__()
    with pytest.raises(ContextStateError, match="call it again"):
        await forwarding.__aenter__()


async def test_what_is_given_cannot_be_changed() -> None:
    """It only tells."""
    async with forward_signals(new_context(1)) as forwarded:
        assert isinstance(forwarded, ForwardedSignals)
        with pytest.raises(AttributeError):
            forwarded.received = ()  # type: ignore[misc]  # what is tested
        with pytest.raises(AttributeError):
            forwarded.more = 1  # type: ignore[attr-defined]  # what is tested


async def test_nested_blocks_end_all_their_groups(tmp_path: Path) -> None:
    """Each of them gets the signal; one that is asked for by the inner one alone ends the inner group alone."""
    async with (
        shell_group(tmp_path / "outer", ANSWERS, cwd=tmp_path) as outer,
        shell_group(tmp_path / "inner", ANSWERS, cwd=tmp_path) as inner,
        shell_group(tmp_path / "own", ANSWERS, cwd=tmp_path) as own,
        forward_signals(outer) as by_outer,
        forward_signals(inner) as by_inner,
        forward_signals(own, signal.SIGUSR1) as by_own,
    ):
        send(signal.SIGUSR1)
        await own.wait(timeout=20)
        assert await outer.wait(timeout=0.05) is None
        send(signal.SIGINT)
        await asyncio.gather(outer.wait(timeout=20), inner.wait(timeout=20))

        assert written(own, 0) == "ready\nheard USR1\n"
        assert written(outer, 0) == written(inner, 0) == "ready\nheard INT\n"
    assert by_outer.received == by_inner.received == (signal.SIGINT,)
    assert by_own.received == (signal.SIGUSR1,)


async def test_after_the_inner_block_the_outer_one_goes_on(tmp_path: Path) -> None:
    """What the inner one replaced is in force again: the signal is the outer group's first."""
    async with shell_group(tmp_path / "outer", ANSWERS, cwd=tmp_path) as outer, forward_signals(outer) as by_outer:
        async with shell_group(tmp_path / "inner", SLEEP, cwd=tmp_path) as inner, forward_signals(inner) as by_inner:
            pass
        send(signal.SIGTERM)
        await outer.wait(timeout=20)

    assert (by_outer.received, by_inner.received) == ((signal.SIGTERM,), ())


async def test_blocks_of_two_tasks_overlap_in_any_order(tmp_path: Path) -> None:
    """The block that was entered first may be left first: the other one still forwards."""
    first = forward_signals(new_context(1))
    await first.__aenter__()
    async with shell_group(tmp_path, ANSWERS) as context:
        second = forward_signals(context)
        by_second = await second.__aenter__()
        await first.__aexit__(None, None, None)
        send(signal.SIGHUP)
        result = await context.wait(timeout=20)
        await second.__aexit__(None, None, None)

    assert result is not None
    assert by_second.received == (signal.SIGHUP,)
