"""Functions that fail, and functions that end in other ways than by returning, for ranks to run.

Every rank that does so imports this module, so it imports next to nothing.
"""

# ruff: noqa: PLC0415 - what only some ranks need is imported by those

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from tests.helpers.functions import wait_for


def leave(way: Callable[[Any], Any], code: Any) -> None:
    """End by ``sys.exit`` or ``os._exit``."""
    way(code)


def leave_on(sign: Path, code: Any, way: Callable[[Any], Any]) -> None:
    """End in that way as soon as there is a file."""
    wait_for(sign)
    way(code)


def leave_at_exit(code: int) -> str:
    """Return, and have a finalizer end the process."""
    from multiprocessing.util import Finalize

    Finalize(None, os._exit, (code,), exitpriority=1)
    return "returned"


def leave_with_text_on_stderr(code: int) -> NoReturn:
    """End without Python's knowing, after a last word."""
    os.write(2, b"device lost\n")
    os._exit(code)


def kill_self(number: int) -> None:
    """Die of a signal."""
    os.kill(os.getpid(), number)
    signal.pause()


def fail_in_thread(value: Any) -> Any:
    """Return the argument after a thread has failed."""
    threading.excepthook = lambda _: None
    thread = threading.Thread(target=fail, args=("ValueError", "in a thread"))
    thread.start()
    thread.join()
    return value


def fail(kind: str, text: str) -> NoReturn:
    """Raise a built-in exception."""
    import builtins

    raise getattr(builtins, kind)(text)


def fail_at_length(length: int) -> NoReturn:
    """Raise an exception with a long text."""
    raise ValueError("head" + "x" * length + "tail")


def close_all() -> str:
    """Close descriptors that are somebody else's, as a program does that becomes a daemon."""
    os.closerange(3, 1000)
    return "value"


def close_all_and_open(path: Path) -> str:
    """Do so, and open so many files that one has the number of the pipe."""
    value = close_all()
    for _ in range(60):
        os.open(path, os.O_WRONLY | os.O_CREAT)
    return value


async def fail_async(text: str) -> NoReturn:
    """Raise within a loop."""
    raise ValueError(text)


def fail_in_group() -> NoReturn:
    """Raise several exceptions at once."""
    raise ExceptionGroup("both", [ValueError("one"), KeyError("two")])


def fail_because() -> NoReturn:
    """Raise an exception with a cause and a note."""
    try:
        fail("KeyError", "the cause")
    except KeyError as cause:
        error = RuntimeError("the consequence")
        error.add_note("a note")
        raise error from cause


def fail_at_exit() -> NoReturn:
    """Raise, and have a finalizer end the process as if nothing had happened."""
    from multiprocessing.util import Finalize

    Finalize(None, os._exit, (0,), exitpriority=1)
    raise ValueError("before the exit")


def raise_on(sign: Path, text: str) -> NoReturn:
    """Raise as soon as there is a file."""
    wait_for(sign)
    raise ValueError(text)


def raise_on_sigterm(ready: Path, other: Path | None) -> None:
    """Raise as soon as another rank is ready; without another, turn SIGTERM into an exception."""

    def interrupt(*_: object) -> NoReturn:
        raise RuntimeError("the consequence")

    if other is not None:
        raise_on(other, "the cause")
    signal.signal(signal.SIGTERM, interrupt)
    ready.touch()
    while True:
        time.sleep(0.01)


def leave_well(way: str) -> None:
    """End with 0 in one of the ways that Python knows."""
    if way == "sys.exit":
        sys.exit(0)
    if way == "exit":
        import _sitebuiltins

        _sitebuiltins.Quitter("exit", "")(0)
    if way == "raise":
        raise SystemExit
    if way == "coroutine":
        import asyncio

        asyncio.run(leave_async())
    thread = threading.Thread(target=sys.exit)
    thread.start()
    thread.join()


async def leave_async() -> None:
    """End with 0 within a loop."""
    sys.exit(0)


def vanish(way: str) -> None:
    """End with 0 without Python's knowing."""
    if way == "_exit":
        os._exit(0)
    if way == "execv":
        os.execv("/bin/true", ["true"])
    if way == "quick_exit":
        import ctypes

        ctypes.CDLL(None).quick_exit(0)
    threading.Thread(target=os._exit, args=(0,)).start()
    signal.pause()


def vanish_with_grandchild(child: Path) -> None:
    """End with 0, and leave a child that holds all that is open."""
    pid = os.fork()
    if not pid:
        signal.pause()
    child.write_text(str(pid))
    os._exit(0)


def fail_from(kind: type[Exception], *args: Any) -> NoReturn:
    """Raise because of an exception of the given kind."""
    raise RuntimeError("the consequence") from kind(*args)


async def fail_in_coroutine(kind: type[Exception], *args: Any) -> None:
    """Raise an exception of the given kind in a task of a group."""
    import asyncio

    async def work() -> None:
        raise kind(*args)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(work())


def fail_with(kind: type[Exception], *args: Any) -> NoReturn:
    """Raise an exception of the given kind."""
    error = kind(*args)
    error.__dict__["state"] = 1
    raise error
