"""Who a group belongs to, the test or the fixture that has started it, and how it ends with it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Generator
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final

import pytest

from aioelastic._base.defaults import REAP_TIMEOUT
from aioelastic._contexts.context import PContext
from aioelastic._errors.exceptions import ContextStateError
from aioelastic._launch import Starting
from aioelastic._testing.leftovers import end_leftovers
from aioelastic._testing.outside import run_on

_MARGIN: Final = 3 * REAP_TIMEOUT
"""Seconds that closing may take beyond the limits that a call can set: twice ranks are awaited that do not die."""

_owner: ContextVar["Owner | None"] = ContextVar("owner of what this task starts", default=None)


def owner_of_task() -> "Owner | None":
    """Give the owner whose code, or a task of it, is running."""
    return _owner.get()


class Owner:
    """A test or a fixture, and the groups it has started.

    Its code runs in turns: a test has one, a fixture that yields has two. The last one ends with closing the groups, in
    the event loop that they live in. What that cannot reach (the turn was torn by a time limit, the fixture is not
    asynchronous) `finish` does from outside.

    Attributes:
        name: The name of the test or fixture.
        groups: What it has started, in that order.
        is_over: It was torn down; what a task of it starts from now on belongs to whoever's turn it is.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.groups: list[Kept] = []
        self.is_over = False
        self._calls: list[WatchedStart] = []
        self._turn: _Turn | None = None
        self._problems: list[str] = []

    def note_call(self, start: "WatchedStart") -> None:
        """Take note of a call, which is to be awaited."""
        self._calls.append(start)

    def note_start(self, context: PContext) -> None:
        """Take note of a group that is being started in the running event loop.

        Raises:
            ContextStateError: The loop is not asyncio's.
        """
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            raise ContextStateError(
                f"start_processes({context.name!r}, ...) was awaited outside of asyncio, which it needs: if this test "
                'runs on trio, have it run on asyncio only, by a fixture anyio_backend that returns "asyncio"'
            ) from None
        self.groups.append(Kept(context, loop))

    @asynccontextmanager
    async def turn(self) -> AsyncIterator["_Turn"]:
        """Run a part of the owner's code; if it is the last one, or raises, close the groups of this loop.

        Of one that was interrupted nobody waits for an exception any more, so none goes through. It would also end the
        task that anyio runs all tests and fixtures in, and with it the tear-down of other fixtures.
        """
        _owner.set(self)
        turn = self._turn = _Turn()
        try:
            yield turn
        except GeneratorExit:
            # It was thrown away, and its loop is gone: there is nothing to wait with.
            turn.is_last = False
            raise
        except BaseException as error:
            turn.is_last = True
            if not (turn.was_interrupted() and isinstance(error, Exception | asyncio.CancelledError)):
                raise
        finally:
            # Not reset by a token, which needs the same context: one that is thrown away ends anywhere.
            _owner.set(None)
            try:
                if turn.is_last:
                    await self._close()
            finally:
                turn.over.set()
                self._turn = None

    def finish(self) -> None:
        """End, from outside of any event loop, what is left; what cannot be closed is killed, and is a problem."""
        turn, self._turn = self._turn, None
        if turn is not None and turn.task is not None:
            # The caller of its loop was torn out of it, by the signal of a time limit or by Ctrl-C. It would go on as
            # soon as the loop runs again, for the tear-down of a fixture, say.
            run_on(turn.task.get_loop(), turn.interrupt, self._patience())
        for loop in {each.loop for each in self.groups if not each.is_closed}:
            run_on(loop, self._close, self._patience())
        self._look_for_leftovers()
        self._look_for_calls()

    def tear_down(self) -> None:
        """End what is left, for good.

        Raises:
            LeftSomethingError: Something was found wrong.
        """
        self.finish()
        self.is_over = True
        self.raise_problems()

    def raise_problems(self) -> None:
        """Fail the test, or the tear-down, for what was found wrong since the last time."""
        problems, self._problems = self._problems, []
        if problems:
            raise LeftSomethingError("\n\n".join(problems), pytrace=False)

    def _patience(self) -> float:
        """Give the seconds after which nobody waits any more for the groups to close."""
        return _MARGIN + max((each.limit() for each in self.groups), default=0.0)

    async def _close(self) -> None:
        """Close the groups of the running loop."""
        unclosed = [each for each in self.groups if not each.is_closed]
        if not unclosed:
            return  # before asking for asyncio's loop: it may be trio's
        here = [each for each in unclosed if each.loop is asyncio.get_running_loop()]
        outcomes = await asyncio.gather(*(each.close() for each in here), return_exceptions=True)
        for kept, outcome in zip(here, outcomes, strict=True):
            if outcome is not None:
                self._problems.append(f"{kept.context!r} could not be closed: {outcome!r}")

    def _look_for_leftovers(self) -> None:
        groups = [each for each in self.groups if not each.is_judged]
        if groups:
            self._problems += end_leftovers([each.context for each in groups])
        for each in groups:
            each.is_judged = each.is_closed = True

    def _look_for_calls(self) -> None:
        calls, self._calls = self._calls, []
        for call in calls:
            if not call.was_used:
                call.close()
                self._problems.append(
                    f"start_processes({call.context.name!r}, ...) was called and not awaited, so nothing was started: "
                    "write `context = await start_processes(...)`, or `async with start_processes(...) as context`, "
                    "in an `async def`"
                )


class LeftSomethingError(pytest.fail.Exception):  # type: ignore[misc, name-defined] # in public it has no other name
    """A test or a fixture has not cleaned up, or has forgotten to await."""

    __module__ = "builtins"  # pytest shows the name with its module, and hides that of its own in the same way


class Kept:
    """A group of an owner.

    Attributes:
        context: The group.
        loop: The event loop it lives in.
        is_closed: It was closed, or given up.
        is_judged: Somebody has looked what is left of it.
    """

    def __init__(self, context: PContext, loop: asyncio.AbstractEventLoop) -> None:
        self.context = context
        self.loop = loop
        self.is_closed = False
        self.is_judged = False

    def limit(self) -> float:
        """Give the seconds that its call lets it take to end."""
        context = self.context
        return context._shutdown_timeout + context._drain_timeout  # noqa: SLF001 - nobody else has a use for them

    async def close(self) -> None:
        """Close the group."""
        await self.context.close()
        self.is_closed = True


class WatchedStart(Starting):
    """A start that tells, when it begins, whose group it is."""

    def __init__(self, context: PContext, caller: Owner, owner: Callable[[], Owner]) -> None:
        super().__init__(context)
        self.was_used = False
        self._owner_now = owner
        caller.note_call(self)

    def send(self, value: Any) -> Any:
        """Go on with the start; for the event loop."""
        self._begin()
        return super().send(value)

    def close(self) -> None:
        """Give the start up before it has begun."""
        self.was_used = True
        super().close()

    def __await__(self) -> Generator[Any, Any, PContext]:
        self._begin()
        return super().__await__()

    async def __aenter__(self) -> PContext:
        self._begin()
        return await super().__aenter__()

    def _begin(self) -> None:
        if not self.was_used:
            self.was_used = True
            try:
                self._owner_now().note_start(self.context)
            except ContextStateError:
                super().close()
                raise


class _Turn:
    """A part of the owner's code that is running.

    Attributes:
        task: The task that runs it; ``None`` on trio.
        over: Is set when it is over, closing included.
        is_last: Closing comes after it.
    """

    def __init__(self) -> None:
        self.task = _current_task()
        self.over = asyncio.Event()
        self.is_last = False
        self._is_interrupted = False

    async def interrupt(self) -> None:
        """Cancel its task, and wait until it is over."""
        if self.task is not None:
            self._is_interrupted = True
            self.task.cancel()
            await self.over.wait()

    def was_interrupted(self) -> bool:
        """Tell whether it was interrupted, and take the cancellation back from the task, which may go on."""
        if self._is_interrupted and self.task is not None:
            self.task.uncancel()
        return self._is_interrupted


def _current_task() -> "asyncio.Task[Any] | None":
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None  # trio
