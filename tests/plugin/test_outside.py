"""Having an event loop do something from outside of it."""

import asyncio
import threading

from aioelastic._testing.outside import run_on


def test_a_loop_that_hangs_is_not_waited_for() -> None:
    """What a loop of another thread does not come to is given up after a while."""
    loop = asyncio.new_event_loop()
    released = threading.Event()
    done: list[str] = []
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    loop.call_soon_threadsafe(released.wait)

    async def note() -> None:
        done.append("note")

    try:
        run_on(loop, note, 0.01)
        assert done == []
    finally:
        released.set()
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), loop).result()  # after that, what has waited has begun
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


def test_a_task_that_does_not_end_is_not_waited_for() -> None:
    """On a loop that does not run, it runs no longer than it may."""
    loop = asyncio.new_event_loop()

    run_on(loop, lambda: asyncio.sleep(99), 0.01)

    loop.close()
