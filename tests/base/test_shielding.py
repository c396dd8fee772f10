"""Waiting for what must be over before anybody goes on."""

import asyncio
import threading
from typing import Any

import pytest

from aioelastic._base.shielding import settled_in_thread


def test_what_a_call_opens_is_known_although_the_loop_ends() -> None:
    """The end of the event loop, which cancels all tasks, waits for a call in a thread, and its result is kept."""
    begun, cancelled = threading.Event(), threading.Event()
    kept: list[str] = []

    def open_it(name: str) -> str:
        begun.set()
        cancelled.wait(20)
        return name

    async def be_cancelled_as_well() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    async def main() -> list[asyncio.Task[Any]]:
        opening = asyncio.create_task(settled_in_thread(kept.append, open_it, "it"))
        tasks = [opening, asyncio.create_task(be_cancelled_as_well())]
        while not begun.is_set():
            await asyncio.sleep(0)
        return tasks

    assert all(task.cancelled() for task in asyncio.run(main()))
    assert kept == ["it"]


async def test_what_a_call_raises_comes_to_the_caller() -> None:
    """Then there is nothing to keep."""
    kept: list[int] = []

    with pytest.raises(ZeroDivisionError):
        await settled_in_thread(kept.append, lambda: 1 // 0)

    assert kept == []
