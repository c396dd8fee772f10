"""Threads for calls that may block: one as long as none does, none when all is done."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import pytest

from aioelastic._base.threads import BlockingThreads, Mailbox, in_thread
from tests.helpers.waiting import until


@asynccontextmanager
async def named(name: str, limit: int = 4) -> AsyncIterator[BlockingThreads]:
    """Give threads of a name, and close them."""
    threads = BlockingThreads(name, limit)
    try:
        yield threads
    finally:
        await threads.close()


def count(name: str) -> int:
    """Count the live threads of a name."""
    return sum(thread.name == name for thread in threading.enumerate())


async def test_calls_that_do_not_block_share_one_thread() -> None:
    """Any number of calls run in one thread, in the order in which they were submitted."""
    done: list[int] = []
    names: set[int] = set()

    def note(number: int) -> None:
        done.append(number)
        names.add(threading.get_ident())

    async with named("quick") as threads:
        for number in range(1000):
            threads.submit(partial(note, number))
            if number % 100 == 0:
                await asyncio.sleep(0)
        await until(lambda: len(done) == 1000)

    assert done == list(range(1000))
    assert len(names) == 1


async def test_there_is_no_thread_before_the_first_call() -> None:
    """Threads that nobody asked for do not exist, and closing them does nothing."""
    async with named("unused"):
        assert count("unused") == 0


@pytest.mark.parametrize("together", [True, False])
async def test_another_thread_helps_when_one_is_stuck(together: bool) -> None:
    """A call behind one that is stuck runs, whether they were submitted in one turn of the loop or in two."""
    stuck = threading.Event()
    async with named("stuck") as threads:
        first = threads.run(stuck.wait)
        if not together:
            await asyncio.sleep(0)
        assert await asyncio.wait_for(threads.run(lambda: "second"), 10) == "second"
        assert not first.done()
        stuck.set()
        await first


async def test_an_idle_thread_that_gets_stuck_is_helped() -> None:
    """A thread that was idle and takes the first of two calls, which blocks, does not keep the second one waiting."""
    stuck = threading.Event()
    async with named("idle") as threads:
        await threads.run(lambda: None)
        first = threads.run(stuck.wait)
        assert await asyncio.wait_for(threads.run(lambda: "second"), 10) == "second"
        stuck.set()
        await first


async def test_there_are_no_more_threads_than_the_limit() -> None:
    """Calls beyond the limit wait for one that ends."""
    stuck = threading.Event()
    async with named("limited", 3) as threads:
        calls = [threads.run(stuck.wait) for _ in range(5)]
        await until(lambda: count("limited") == 3)
        await asyncio.sleep(0.1)
        assert count("limited") == 3
        stuck.set()
        assert await asyncio.gather(*calls) == [True] * 5


async def test_a_loop_that_is_held_up_holds_up_no_other() -> None:
    """What one event loop has submitted, and woke no thread for, does not keep the calls of another one waiting."""
    submitted, go_on, done = threading.Event(), threading.Event(), threading.Event()

    async def be_held_up(threads: BlockingThreads) -> None:
        threads.submit(lambda: None)
        submitted.set()
        go_on.wait(20)

    async with named("shared", 1) as threads:
        other = threading.Thread(target=asyncio.run, args=(be_held_up(threads),))
        other.start()
        await until(submitted.is_set)
        threads.submit(done.set)
        await until(done.is_set)
        go_on.set()
        other.join()


async def test_close_runs_what_was_submitted_before() -> None:
    """What was submitted in the very turn of the loop that closes is done when close() is over, in order."""
    done: list[str] = []
    threads = BlockingThreads("closing", 2)
    threads.submit(lambda: done.append("first"))
    threads.submit(lambda: done.append("second"))

    await threads.close()

    assert done == ["first", "second"]
    assert count("closing") == 0


async def test_close_does_not_wait_for_a_stuck_call() -> None:
    """close() leaves a thread that is stuck behind, which ends with its call."""
    stuck = threading.Event()
    threads = BlockingThreads("left", 1)
    call = threads.run(stuck.wait)
    await until(lambda: count("left") == 1)

    await asyncio.wait_for(threads.close(), 10)

    assert count("left") == 1
    stuck.set()
    await call
    await until(lambda: count("left") == 0)


async def test_threads_can_be_used_again_after_their_close() -> None:
    """After reopen() one thread serves all calls again; without it a late call still runs, in a thread that ends."""
    threads = BlockingThreads("again", 2)
    await threads.close()
    await threads.run(lambda: None)
    await until(lambda: count("again") == 0)

    threads.reopen()
    seen = {await threads.run(threading.current_thread) for _ in range(20)}
    assert len(seen) == count("again") == 1
    await threads.close()
    assert count("again") == 0


@pytest.mark.parametrize("error", [ValueError("x"), SystemExit(3), KeyboardInterrupt(), GeneratorExit()])
async def test_an_exception_reaches_the_caller(error: BaseException) -> None:
    """Whatever a call raises is the result of its future; the thread goes on."""

    def fail() -> None:
        raise error

    async with named("failing") as threads:
        future = threads.run(fail)
        await asyncio.wait([future])
        assert future.exception() is error
        assert await threads.run(lambda: 1) == 1


async def test_stop_iteration_reaches_the_caller_in_disguise() -> None:
    """StopIteration, which no future can carry, comes as the cause of a RuntimeError instead of never."""

    def fail() -> None:
        raise StopIteration

    with pytest.raises(RuntimeError, match="StopIteration") as caught:
        await asyncio.wait_for(in_thread(fail), 10)
    assert isinstance(caught.value.__cause__, StopIteration)


async def test_a_cancelled_call_is_left_to_its_end() -> None:
    """A cancelled caller goes on at once; the blocking call ends by itself, and its thread with it."""
    stuck = threading.Event()

    def block() -> None:
        stuck.wait()

    task = asyncio.create_task(in_thread(block))
    await until(lambda: count("aioelastic: block") == 1)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asyncio.wait_for(task, 10)
    assert count("aioelastic: block") == 1
    stuck.set()
    await until(lambda: count("aioelastic: block") == 0)


async def test_in_thread_gives_the_result_of_another_thread() -> None:
    """The function runs in a thread of its own, which is gone afterwards."""
    assert await in_thread(divmod, 7, 2) == (3, 1)
    assert await in_thread(threading.get_ident) != threading.get_ident()
    assert count("aioelastic: divmod") == 0


async def test_a_mailbox_keeps_the_order() -> None:
    """News of one thread arrive on the loop's thread in the order in which they were posted, none twice."""
    mailbox = Mailbox()
    got: list[tuple[str, int]] = []
    places: set[int] = set()

    def take(news: tuple[str, int]) -> None:
        got.append(news)
        places.add(threading.get_ident())

    def post(name: str) -> None:
        for number in range(2000):
            mailbox.post(take, (name, number))

    async with named("posting") as one, named("posting") as two:
        await asyncio.gather(one.run(post, "a"), two.run(post, "b"))
        await until(lambda: len(got) >= 4000)

    for name in "ab":
        assert [number for each, number in got if each == name] == list(range(2000))
    assert places == {threading.get_ident()}


def test_a_mailbox_of_a_closed_loop_swallows() -> None:
    """News for a loop that is gone are no error in the thread that posts."""

    async def make() -> Mailbox:
        return Mailbox()

    mailbox = asyncio.run(make())
    mailbox.post(lambda _: None, None)
