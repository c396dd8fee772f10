"""What is left of a block that forwards signals, however it is left: the handlers of before, and no task."""

import asyncio
import contextvars
import logging
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from aioelastic import DefaultLogsSpecs, PContext, SubprocessContext, forward_signals
from tests.helpers.groups import shell_group, written
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import is_alive, until, until_written

COUNTS = (
    'for each in TERM INT HUP QUIT; do trap "echo heard $each" $each; done; echo ready; while :; do sleep 0.05; done'
)
"""Says of each signal that it came, and stays."""

SAYS_BYE = "trap 'sleep 0.2; echo bye; exit 0' INT; echo ready; while :; do sleep 0.05; done"
"""Needs a moment to leave."""


class FailingClose(SubprocessContext):
    """A context whose closes end well, and then fail."""

    async def close(self, death_sig: Any = None, timeout: Any = None) -> None:
        """See `PContext.close`."""
        await super().close(death_sig, timeout)
        if death_sig is not None:
            raise OSError(f"no room for {signal.Signals(death_sig).name}")


def failing() -> SubprocessContext:
    """Make a group whose closes fail."""
    return FailingClose("job", "sh", shells(SLEEP), None, DefaultLogsSpecs(log_dir=os.devnull))


def send(number: int) -> None:
    """Send this program a signal, and have it seen."""
    os.kill(os.getpid(), number)


@pytest.fixture(autouse=True)
def handlers_as_before() -> Iterator[None]:
    """Fail a test after which any handler is another one than before."""
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    yield
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


def our_tasks() -> list[str]:
    """Give the names of tasks that forward."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("aioelastic: forward")]


async def test_a_body_that_leaves_early_waits_for_the_close(tmp_path: Path) -> None:
    """The ranks have their grace although nobody in the block waits for them; no task of ours is left."""
    async with shell_group(tmp_path, SAYS_BYE, shutdown_timeout=60) as context:
        async with forward_signals(context):
            send(signal.SIGINT)

        assert our_tasks() == []
        assert not is_alive(context.pids()[0])
        assert written(context, 0) == "ready\nbye\n"


async def test_a_second_signal_while_leaving_kills(tmp_path: Path) -> None:
    """As long as the close goes on, signals are ours."""
    async with shell_group(tmp_path, COUNTS, shutdown_timeout=60) as context:

        async def body() -> None:
            async with forward_signals(context):
                send(signal.SIGINT)

        leaving = asyncio.create_task(body())
        await until_written(context.stdouts[0], "heard INT")
        send(signal.SIGTERM)
        await asyncio.wait_for(leaving, 5)

        assert our_tasks() == []
        assert written(context, 0) == "ready\nheard INT\n"


async def test_the_bodys_exception_goes_on_after_the_close(tmp_path: Path) -> None:
    """An exception inside is seen outside as it is, once the group that a signal ended is gone."""
    async with shell_group(tmp_path, SAYS_BYE, shutdown_timeout=60) as context:
        with pytest.raises(KeyError, match="own"):  # noqa: PT012 - the whole block is what is left
            async with forward_signals(context):
                send(signal.SIGINT)
                raise KeyError("own")

        assert written(context, 0) == "ready\nbye\n"


@pytest.mark.parametrize("signalled", [False, True])
async def test_cancelling_the_body_is_not_swallowed(tmp_path: Path, signalled: bool) -> None:
    """A cancelled body is cancelled, with a close under way or without; the group has its grace, or goes on."""
    async with shell_group(tmp_path, SAYS_BYE, shutdown_timeout=60) as context:

        async def body() -> None:
            async with forward_signals(context):
                if signalled:
                    send(signal.SIGINT)
                await asyncio.Event().wait()

        task = asyncio.create_task(body())
        await asyncio.sleep(0.05)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        assert our_tasks() == []
        assert is_alive(context.pids()[0]) is not signalled
        assert written(context, 0) == ("ready\nbye\n" if signalled else "ready\n")


async def test_cancelled_while_leaving_it_kills_reaps_and_raises(tmp_path: Path) -> None:
    """Cancellation during the wait for the close has the meaning that it has for a close; again changes nothing."""
    async with shell_group(tmp_path, COUNTS, shutdown_timeout=60) as context:

        async def body() -> None:
            async with forward_signals(context):
                send(signal.SIGINT)

        task = asyncio.create_task(body())
        await until_written(context.stdouts[0], "heard INT")
        began = time.monotonic()
        while not task.done():
            task.cancel()
            await asyncio.sleep(0)

        assert task.cancelled()
        assert time.monotonic() - began < 5
        assert our_tasks() == []
        assert not is_alive(context.pids()[0])


async def test_a_cancel_scope_around_the_block_kills(tmp_path: Path) -> None:
    """The same for anyio, whose cancellation is delivered again and again."""
    async with shell_group(tmp_path, COUNTS, shutdown_timeout=60) as context:
        with anyio.move_on_after(60) as scope:
            async with forward_signals(context):
                send(signal.SIGINT)
                await until_written(context.stdouts[0], "heard INT")
                scope.cancel()

        assert scope.cancelled_caught
        assert not is_alive(context.pids()[0])


async def test_cancelled_right_with_the_signal(tmp_path: Path) -> None:
    """A cancellation k steps after the signal loses neither: the group is gone, and the body cancelled."""
    for steps in range(1, 12):
        async with shell_group(tmp_path / str(steps), COUNTS, cwd=tmp_path, shutdown_timeout=60) as context:

            async def body(context: PContext) -> None:
                async with forward_signals(context):
                    send(signal.SIGINT)
                    await asyncio.sleep(0)

            task = asyncio.create_task(body(context))
            for _ in range(steps):
                await asyncio.sleep(0)
            task.cancel()
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.wait([task])

            assert task.cancelled()
            assert not is_alive(context.pids()[0])
            assert our_tasks() == []


async def test_a_close_that_fails_is_raised_on_leaving() -> None:
    """What a forwarded close raises comes out of the block, with the handlers put back."""
    async with failing() as context:
        with pytest.raises(OSError, match="no room for SIGINT"):  # noqa: PT012 - the whole block is what is left
            async with forward_signals(context):
                send(signal.SIGINT)
                await context.wait(timeout=20)

        assert our_tasks() == []


async def test_more_closes_that_fail_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    """The first failure is raised, the others are in the log."""
    async with failing() as context:
        with pytest.raises(OSError, match="no room for SIGINT"):  # noqa: PT012 - the whole block is what is left
            async with forward_signals(context):
                send(signal.SIGINT)
                send(signal.SIGINT)

    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info is not None
    assert str(record.exc_info[1]) == "no room for SIGKILL"


@pytest.mark.parametrize("error", [KeyError, asyncio.CancelledError, SystemError])
async def test_a_close_that_fails_does_not_hide_the_bodys_exception(
    caplog: pytest.LogCaptureFixture, error: type[BaseException]
) -> None:
    """Where the block is left by another exception that one goes on, and the failure is logged with its traceback."""
    async with failing() as context:
        with pytest.raises(error):  # noqa: PT012 - the whole block is what is left
            async with forward_signals(context):
                send(signal.SIGINT)
                raise error

    [record] = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert "'job' on a signal failed" in record.getMessage()
    assert record.exc_info is not None
    assert isinstance(record.exc_info[1], OSError)


async def test_every_kind_of_handler_is_put_back() -> None:
    """The very same function, the system's default and the loop's own are in force again, and work."""
    calls: list[str] = []

    def own(*_: object) -> None:
        calls.append("own")

    loop = asyncio.get_running_loop()
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGUSR1)}
    signal.signal(signal.SIGTERM, own)
    loop.add_signal_handler(signal.SIGUSR1, calls.append, "loop's")
    loops = signal.getsignal(signal.SIGUSR1)
    try:
        async with failing() as context, forward_signals(context, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2):
            assert signal.getsignal(signal.SIGTERM) is not own
        assert signal.getsignal(signal.SIGTERM) is own
        assert signal.getsignal(signal.SIGUSR1) is loops
        assert signal.getsignal(signal.SIGUSR2) is signal.SIG_DFL
        send(signal.SIGTERM)
        send(signal.SIGUSR1)
        await until(lambda: len(calls) == 2)
        assert calls == ["own", "loop's"]
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)
        for number, handler in before.items():
            signal.signal(number, handler)


async def test_the_loops_own_handlers_are_called_as_well(tmp_path: Path) -> None:
    """A handler of ``loop.add_signal_handler`` hears of a signal that is forwarded."""
    calls: list[str] = []
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGUSR1, calls.append, "loop's")
    try:
        async with shell_group(tmp_path, SLEEP) as context, forward_signals(context, signal.SIGUSR1) as forwarded:
            send(signal.SIGUSR1)
            result = await context.wait(timeout=20)
    finally:
        loop.remove_signal_handler(signal.SIGUSR1)

    assert result is not None
    assert (calls, result.exits[0].signal, forwarded.received) == (["loop's"], "SIGUSR1", (signal.SIGUSR1,))


async def test_what_is_ignored_stays_ignored(tmp_path: Path) -> None:
    """A signal that the program ignores is not forwarded, and others are."""
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        async with shell_group(tmp_path, SLEEP) as context, forward_signals(context) as forwarded:
            assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
            send(signal.SIGHUP)
            assert await context.wait(timeout=0.1) is None
            assert forwarded.received == ()
            send(signal.SIGTERM)
            assert await context.wait(timeout=20) is not None
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_no_signal_is_lost_on_the_way_in_and_out() -> None:
    """Whenever it comes, a signal is either the former handler's or forwarded, once."""
    outside: list[int] = []
    before = signal.signal(signal.SIGUSR1, lambda number, _: outside.append(number))
    inside = 0
    moments = random.Random()
    try:
        async with failing() as context:
            await context.close()
            for turns in range(200):
                thread = threading.Timer(moments.random() * 0.002, send, [signal.SIGUSR1])
                thread.start()
                await asyncio.sleep(0.0005)
                try:
                    async with forward_signals(context, signal.SIGUSR1) as forwarded:
                        await asyncio.sleep(0.0005)
                except OSError:
                    assert forwarded.received
                inside += len(forwarded.received)
                while thread.is_alive():
                    await asyncio.sleep(0.0005)
                thread.join()
                assert inside + len(outside) == turns + 1
    finally:
        signal.signal(signal.SIGUSR1, before)


async def test_the_close_runs_in_the_context_variables_of_the_block(tmp_path: Path) -> None:
    """It sees those of where the block was entered, and not those of what the signal interrupted."""
    variable = contextvars.ContextVar("variable", default="none")
    seen: list[str] = []

    class Looking(SubprocessContext):
        async def close(self, death_sig: Any = None, timeout: Any = None) -> None:
            seen.append(variable.get())
            await super().close(death_sig, timeout)

    async def interrupted() -> None:
        variable.set("interrupted")
        send(signal.SIGTERM)

    variable.set("block")
    context = Looking("job", "sh", shells(SLEEP), None, DefaultLogsSpecs(log_dir=os.devnull))
    async with context, forward_signals(context):
        await asyncio.create_task(interrupted())
        await context.wait(timeout=20)

    assert seen[0] == "block"
