"""Daemon threads for calls that may block, gone when they are no longer needed.

Neither the loop's default executor nor anyio's worker threads serve here: both keep idle threads after a group has
ended, both are joined at the interpreter's exit, and one console that is stuck for ever would hold the program with it.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_JOIN_TIMEOUT = 0.1
"""Seconds for a thread that has said it is at its end to be off the interpreter's list."""


class BlockingThreads:
    """Runs calls in as many threads as block at the same time, up to a limit; serves any number of event loops."""

    def __init__(self, name: str, limit: int) -> None:
        self._name = name
        self._limit = limit
        self._calls: deque[Callable[[], None]] = deque()
        self._ready = threading.Condition()
        self._idle = 0
        self._closing = False
        self._threads: set[threading.Thread] = set()
        self._ended: deque[threading.Thread] = deque()
        self._on_last_ended: Callable[[], None] | None = None

    def submit(self, call: Callable[[], None]) -> None:
        """Have a call run, in the order of submission as far as threads are free; it must not raise."""
        with self._ready:
            self._calls.append(call)
            if self._idle:
                self._ready.notify()
            elif len(self._threads) < self._limit:
                thread = threading.Thread(target=self._work, name=self._name, daemon=True)
                self._threads.add(thread)
                thread.start()

    def run(self, function: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Have a function run and give the future of its result."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = function(*args)
            except Exception as error:  # noqa: BLE001 - handed to whoever awaits the future
                _tell(loop, _fail, outcome, error)
            else:
                _tell(loop, _succeed, outcome, result)

        self.submit(call)
        return outcome

    async def close(self) -> None:
        """Let the threads end after what was submitted, and wait for those that are not stuck in a call."""
        loop = asyncio.get_running_loop()
        last_ended = asyncio.Event()
        with self._ready:
            self._closing = True
            self._on_last_ended = partial(_tell, loop, last_ended.set)
            self._ready.notify_all()
            running = bool(self._threads)
        if running:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_JOIN_TIMEOUT):
                    await last_ended.wait()
        while self._ended:
            self._ended.popleft().join(_JOIN_TIMEOUT)

    def _work(self) -> None:
        while call := self._next_call():
            call()
            del call
        with self._ready:
            thread = threading.current_thread()
            self._threads.discard(thread)
            self._ended.append(thread)
            if not self._threads and self._on_last_ended is not None:
                self._on_last_ended()

    def _next_call(self) -> Callable[[], None] | None:
        with self._ready:
            self._idle += 1
            while not self._calls and not self._closing:
                self._ready.wait()
            self._idle -= 1
            return self._calls.popleft() if self._calls else None


async def in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run one blocking call in a thread of its own that ends with it.

    A cancelled caller goes on at once; the call is left to its end.
    """
    threads = BlockingThreads(f"aioelastic-{getattr(function, '__name__', 'call')}", 1)
    outcome = threads.run(function, *args)
    try:
        return await outcome
    finally:
        await threads.close()


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: Exception) -> None:
    if not future.done():
        future.set_exception(error)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call back on the loop's thread, unless the loop is gone."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)
