"""Daemon threads for calls that may block, gone when they are no longer needed.

Neither the loop's default executor nor anyio's worker threads serve here: both keep idle threads after a group has
ended, both are joined at the interpreter's exit, and one console that is stuck for ever would hold the program with it.
Both also wake a thread per call, and threads that wake up all the time fight the event loop for the interpreter: its
delay grows with them. Here one thread works at a time, on all that was submitted in one turn of the loop; another one
joins in only when it is stuck.
"""

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, TypeVarTuple

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

_STUCK_AFTER = 0.02
"""Seconds without progress after which waiting calls get another thread."""

_JOIN_TIMEOUT = 0.1
"""Seconds for threads to end that have nothing left to do."""


class BlockingThreads:
    """Runs calls in order, in one thread as long as none blocks, in more (up to a limit) while some do.

    It serves any number of event loops. Where the system gives no thread (RLIMIT_NPROC) it asks again every moment.

    Args:
        name: The name of its threads.
        limit: How many there may be.
        or_inline: Where the system gives no thread, run the calls on the loop instead: they are brief, and what frees
            the system's resources may wait for them.
    """

    def __init__(self, name: str, limit: int, *, or_inline: bool = False) -> None:
        self._name = name
        self._limit = limit
        self._or_inline = or_inline
        self._calls: deque[Callable[[], None]] = deque()
        self._ready = threading.Condition()
        self._idle = 0
        self._finished = 0
        # By loop: one that is held up, or was closed in between, must not keep the others waiting.
        self._waking: set[asyncio.AbstractEventLoop] = set()
        self._watching: set[asyncio.AbstractEventLoop] = set()
        self._closing = False
        self._threads: set[threading.Thread] = set()
        self._ended: deque[threading.Thread] = deque()
        self._on_last_ended: Callable[[], None] | None = None

    def submit(self, call: Callable[[], None]) -> None:
        """Have a call run soon; it must not raise."""
        self._calls.append(call)
        self.see_to_calls()

    def see_to_calls(self) -> None:
        """Have a thread work on what was submitted, by whichever loop: that one may be held up before it gets to it."""
        loop = asyncio.get_running_loop()
        if self._calls and loop not in self._waking:
            # One wake-up for all that this turn of the loop submits.
            self._waking.add(loop)
            loop.call_soon(self._wake, loop)

    def run(self, function: Callable[[*Ts], T], *args: *Ts) -> "asyncio.Future[T]":
        """Have a function run and give the future of its result."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[T] = loop.create_future()

        def call() -> None:
            try:
                result = function(*args)
            except BaseException as error:  # noqa: BLE001 - handed to whoever awaits the future
                _tell(loop, _fail, outcome, error)
            else:
                _tell(loop, _succeed, outcome, result)

        self.submit(call)
        return outcome

    async def close(self) -> None:
        """Let the threads end after what was submitted, and wait for those that are not stuck in a call."""
        last_ended = asyncio.Event()
        loop = asyncio.get_running_loop()
        # What was submitted in this turn of the loop has no thread yet.
        self._wake(loop)
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

    def let_go(self) -> None:
        """Let the threads end after what was submitted, without waiting for that; from any thread."""
        with self._ready:
            self._closing = True
            self._ready.notify_all()

    def reopen(self) -> None:
        """Take a `close` back: from here on an idle thread stays."""
        with self._ready:
            self._closing = False
            self._on_last_ended = None

    def _wake(self, loop: asyncio.AbstractEventLoop) -> None:
        self._waking.discard(loop)
        with self._ready:
            if not self._calls:
                return
            if self._idle:
                self._ready.notify()
            elif not self._threads:
                self._add_thread()
            # In any case: the thread that was woken may be stuck in the first of several calls.
            self._watch_progress(loop)

    def _watch_progress(self, loop: asyncio.AbstractEventLoop) -> None:
        """Come back in a moment and see whether the waiting calls are being worked on."""
        if loop not in self._watching and len(self._threads) < self._limit:
            self._watching.add(loop)
            loop.call_later(_STUCK_AFTER, self._help_if_stuck, loop, self._finished)

    def _help_if_stuck(self, loop: asyncio.AbstractEventLoop, finished_then: int) -> None:
        self._watching.discard(loop)
        with self._ready:
            if not self._calls:
                return
            if self._finished == finished_then and not self._idle and len(self._threads) < self._limit:
                self._add_thread()
            self._watch_progress(loop)

    def _add_thread(self) -> None:
        # Those that have ended are past their last line by now; only close() has to wait for that.
        self._ended.clear()
        thread = threading.Thread(target=self._work, name=self._name, daemon=True)
        self._threads.add(thread)
        try:
            thread.start()
        except RuntimeError:
            self._threads.discard(thread)
            while self._or_inline and not self._threads and self._calls:
                self._calls.popleft()()

    def _work(self) -> None:
        while call := self._next_call():
            call()
            del call
            self._finished += 1

    def _next_call(self) -> Callable[[], None] | None:
        while True:
            # Without the lock: that would cost a fight for it per call. So another thread may always be faster.
            with contextlib.suppress(IndexError):
                return self._calls.popleft()
            with self._ready:
                if self._calls:
                    continue
                if self._closing:
                    # Within the same lock: a call that comes now must find no thread, or one that will take it.
                    self._retire()
                    return None
                self._idle += 1
                self._ready.wait()
                self._idle -= 1

    def _retire(self) -> None:
        thread = threading.current_thread()
        self._threads.discard(thread)
        self._ended.append(thread)
        if not self._threads and self._on_last_ended is not None:
            self._on_last_ended()


class Mailbox:
    """Takes news from threads to one event loop: one wake-up for all that comes in before the loop looks."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._news: deque[tuple[Callable[[Any], None], Any]] = deque()
        self._called = False

    def post(self, callback: Callable[[T], None], argument: T) -> None:
        """Have a callback called on the loop; from any thread, and without effect once the loop is closed."""
        self._news.append((callback, argument))
        if not self._called:
            self._called = True
            _tell(self._loop, self._deliver)

    def _deliver(self) -> None:
        # Cleared first: what is posted from here on calls again, at worst for nothing.
        self._called = False
        while self._news:
            callback, argument = self._news.popleft()
            callback(argument)


async def in_thread(function: Callable[[*Ts], T], *args: *Ts) -> T:
    """Run one brief blocking call in a thread of its own that ends with it.

    A cancelled caller goes on at once; the call is left to its end.
    """
    threads = BlockingThreads(f"aioelastic: {getattr(function, '__name__', 'call')}", 1, or_inline=True)
    outcome = threads.run(function, *args)
    try:
        return await outcome
    finally:
        await threads.close()


def _succeed(future: "asyncio.Future[T]", result: T) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: "asyncio.Future[T]", error: BaseException) -> None:
    if future.done():
        return
    if isinstance(error, StopIteration):
        # A future refuses it: it would end the generator below the coroutine that awaits it.
        wrapped = RuntimeError("the call raised StopIteration")
        wrapped.__cause__ = error
        error = wrapped
    future.set_exception(error)


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[[*Ts], object], *args: *Ts) -> None:
    """Call back on the loop's thread, unless the loop is gone."""
    with contextlib.suppress(RuntimeError):
        loop.call_soon_threadsafe(callback, *args)
