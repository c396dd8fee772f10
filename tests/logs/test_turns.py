"""Sharing the loop among streams: by time, in the order of asking."""

import asyncio
import time

import pytest

from aioelastic._base.defaults import PIECE_BYTES
from aioelastic._logs.turns import Portion, Turns


def _work(seconds: float) -> None:
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


async def test_those_who_ask_are_called_in_order_and_once() -> None:
    """Each gets one call for one asking, in the order of asking, and none before the loop's next turn."""
    turns = Turns()
    called: list[str] = []
    turns.ask(lambda: called.append("first"))
    turns.ask(lambda: called.append("second"))
    before = list(called)
    await asyncio.sleep(0)
    await asyncio.sleep(0)

    assert before == []
    assert called == ["first", "second"]


async def test_others_have_their_turn_between_long_calls() -> None:
    """Whatever is ready on the loop runs between two calls that take long."""
    turns = Turns()
    order: list[str] = []

    def deliver() -> None:
        _work(0.003)
        order.append("stream")

    turns.ask(deliver)
    turns.ask(deliver)
    for _ in range(3):
        await asyncio.sleep(0)
        order.append("other")

    assert order == ["stream", "other", "stream", "other", "other"]


async def test_brief_calls_share_one_turn() -> None:
    """As long as the turn's time lasts, who asks again is called again in it."""
    turns = Turns()
    calls = 0

    def deliver() -> None:
        nonlocal calls
        calls += 1
        if calls < 3:
            turns.ask(deliver)

    turns.ask(deliver)
    await asyncio.sleep(0)

    assert calls == 3


async def test_a_call_that_fails_stops_nobody_else(caplog: pytest.LogCaptureFixture) -> None:
    """The loop tells of the exception, and the others are called."""
    turns = Turns()
    called = asyncio.Event()

    def fail() -> None:
        raise ValueError("planted")

    turns.ask(fail)
    turns.ask(called.set)
    async with asyncio.timeout(5):
        await called.wait()

    assert "planted" in caplog.text


def test_portions_become_smaller_when_they_take_long_and_grow_again() -> None:
    """The next portion is what takes a fraction of a millisecond, within its bounds; quick ones double it."""
    portion = Portion()
    first = portion.size
    portion.note(first, 0.004)
    after_long = portion.size
    portion.note(after_long, 1.0)
    least = portion.size
    portion.note(least // 2, 0.0001)
    after_little = portion.size
    for _ in range(20):
        portion.note(portion.size, 0.0001)

    assert least < after_long <= first // 10
    assert least == after_little == 4096
    assert portion.size == PIECE_BYTES
