"""What is put around a test, and around an asynchronous fixture, so that closing happens within its event loop."""

import functools
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from inspect import isasyncgenfunction
from typing import Any

from aioelastic._testing.owner import Owner


def closing_test(function: Callable[..., Awaitable[Any]], owner: Owner) -> Callable[..., Awaitable[Any]]:
    """Wrap a test, so that it ends with closing what it has started."""

    @functools.wraps(function)
    async def test(*args: Any, **kwargs: Any) -> Any:
        async with owner.turn() as turn:
            turn.is_last = True
            return await function(*args, **kwargs)

    return test


def closing_fixture(function: Callable[..., Any], owner: Owner) -> Callable[..., AsyncGenerator[Any, None]]:
    """Wrap an asynchronous fixture, with or without a tear-down, so that it ends with closing what it has started."""
    values_of: Callable[..., AsyncGenerator[Any, None]] = (
        function if isasyncgenfunction(function) else _one_value(function)
    )

    @functools.wraps(function)
    async def fixture(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        async with aclosing(values_of(*args, **kwargs)) as values:
            while True:
                value = None  # of a turn that was interrupted
                async with owner.turn() as turn:
                    try:
                        value = await anext(values)
                    except StopAsyncIteration:
                        turn.is_last = True
                        return
                yield value

    return fixture


def _one_value(function: Callable[..., Awaitable[Any]]) -> Callable[..., AsyncGenerator[Any, None]]:
    async def values(*args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
        yield await function(*args, **kwargs)

    return values
