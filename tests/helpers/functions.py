"""What function ranks run in tests.

Every rank imports this module, so it imports next to nothing.
"""

# ruff: noqa: PLC0415 - what only some ranks need is imported by those

import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn


def give(value: Any) -> Any:
    """Return the argument."""
    return value


def give_all(*values: Any) -> tuple[Any, ...]:
    """Return all arguments."""
    return values


async def give_async(value: Any) -> tuple[Any, bool]:
    """Return the argument, and whether a loop was running."""
    import asyncio

    await asyncio.sleep(0)
    return value, asyncio.get_running_loop().is_running()


def give_bytes(size: int) -> bytes:
    """Return many bytes."""
    return b"x" * size


def give_bytes_on(sign: Path, size: int) -> bytes:
    """Return many bytes as soon as there is a file."""
    wait_for(sign)
    return b"x" * size


def recursive() -> list[Any]:
    """Make a list that contains itself."""
    value: list[Any] = []
    value.append(value)
    return value


def give_array(size: int) -> Any:
    """Return an array of so many bytes."""
    import numpy as np

    return np.ones(size, np.uint8)


def give_made(maker: Callable[..., Any], *args: Any) -> Any:
    """Return what a function makes in the rank; nothing of it has passed a pickle before."""
    return maker(*args)


def double(array: Any) -> Any:
    """Return twice an array."""
    return array * 2


def trainer(a: int, b: int, c: int) -> int:
    """Train, as in the first example of the seed."""
    print(f"{os.environ['LOCAL_RANK']}: {a} {b} {c}")  # noqa: T201 - a rank's output
    sys.stderr.write("trained\n")
    return a + b + c


class Counter:
    """An object whose methods can be entrypoints."""

    def __init__(self, start: int) -> None:
        self.start = start

    def add(self, number: int) -> int:
        """Count on."""
        return self.start + number

    async def add_async(self, number: int) -> int:
        """Count on within a loop."""
        return self.start + number

    @classmethod
    def name_of(cls, number: int) -> str:
        """Name the class and a number."""
        return f"{cls.__name__} {number}"

    def __call__(self, number: int) -> int:
        """Count on."""
        return self.start + number


def wait_for(sign: Path) -> None:
    """Wait until there is a file."""
    while not sign.exists():
        time.sleep(0.005)


def give_on(sign: Path, value: Any) -> Any:
    """Return the argument as soon as there is a file."""
    wait_for(sign)
    return value


def fail_on(sign: Path, code: int = 3) -> NoReturn:
    """Leave with an exit code as soon as there is a file."""
    wait_for(sign)
    sys.exit(code)


def give_or_fail(sign: Path, value: Any) -> Any:
    """Return the argument, or fail as soon as there is a file where there is none."""
    return value if value is not None else fail_on(sign)


def save_on_sigterm(ready: Path) -> str:
    """Wait for SIGTERM, and return what a polite rank would have saved."""
    # Not an Event: its lock is not for signal handlers, which run in the middle of wait().
    told: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _: told.append(number))
    ready.touch()
    while not told:
        time.sleep(0.01)
    return "saved"


class NeedsTwo(Exception):  # noqa: N818 - named for what it does
    """Pickles, and does not unpickle (python/cpython#103061)."""

    def __init__(self, one: str, two: str) -> None:
        super().__init__(f"{one} and {two}")


class Unreducible(Exception):  # noqa: N818 - named for what it does
    """Does not pickle."""

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Fail."""
        raise RuntimeError("this does not pickle")


class Mute(Exception):  # noqa: N818 - named for what it does
    """Has no text."""

    def __str__(self) -> str:
        """Fail."""
        raise RuntimeError("this has no text")


class Deadly(Exception):  # noqa: N818 - named for what it does
    """Ends whatever process unpickles it."""

    def __setstate__(self, state: Any) -> None:
        """End the process."""
        os._exit(9)


class Unpicklable:
    """Does not pickle."""

    def __init__(self, kind: type[Exception] = RuntimeError) -> None:
        self.kind = kind

    def __reduce__(self) -> str | tuple[Any, ...]:
        """Fail."""
        raise self.kind("not me")


class Unopenable:
    """Pickles, and does not unpickle."""

    def __setstate__(self, state: Any) -> None:
        """Fail."""
        raise LookupError("no way back")

    def __getstate__(self) -> object:
        """Give something."""
        return "state"


class EndsProcess:
    """Ends whatever process unpickles it."""

    def __init__(self, code: int) -> None:
        self.code = code

    def __setstate__(self, state: dict[str, int]) -> None:
        """End the process."""
        os._exit(state["code"])


class ExitsElsewhere:
    """Leaves any process but the one it was made in, when it is unpickled."""

    def __init__(self, kind: type[BaseException]) -> None:
        self.home = os.getpid()
        self.kind = kind

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Leave, unless this is home."""
        if state["home"] != os.getpid():
            raise state["kind"](0)


def give_deep(depth: int) -> list[Any]:
    """Return a list in a list in a list."""
    deep: list[Any] = []
    for _ in range(depth):
        deep = [deep]
    return deep


def give_generator() -> Iterator[int]:
    """Yield, which makes what is returned a generator."""
    yield 1


def give_lambda() -> Callable[[int], int]:
    """Return a function that only cloudpickle can pickle."""
    offset = 3
    return lambda number: number + offset


def give_of_module(folder: str) -> Any:
    """Return an object whose module only the rank can import."""
    from importlib import import_module

    sys.path.insert(0, folder)
    return import_module("only_here").Local()


def leave_grandchild() -> int:
    """Return the pid of a child that goes on, and holds all that this process has open."""
    pid = os.fork()
    if not pid:
        signal.pause()
        os._exit(0)
    return pid


def use_queue(queue: Any, value: Any) -> None:
    """Put something into a queue, whose feeding thread is still at it when the rank returns."""
    queue.put(value)


def use_event(asked: Any, answered: Any) -> bool:
    """Wait for one event and set another."""
    told = bool(asked.wait(20))
    answered.set()
    return told


def use_lock(lock: Any, number: Path) -> None:
    """Count in a file, under a lock."""
    for _ in range(100):
        with lock:
            number.write_text(str(int(number.read_text()) + 1))


def use_connection(connection: Any) -> str:
    """Answer what comes by a connection."""
    with connection:
        word: str = connection.recv()
        connection.send(word.upper())
    return word


def use_memory(memory: Any) -> int:
    """Write into shared memory."""
    memory.buf[0] += 1
    memory.close()
    return os.getpid()


def use_barrier(barrier: Any) -> int:
    """Wait until all ranks are here."""
    return int(barrier.wait(20))


def name_of_socket(listening: Any) -> Any:
    """Return the address of a socket."""
    return listening.getsockname()


class HeldUp:
    """Says when it is being unpickled elsewhere, and waits there until it may go on."""

    unpickling = threading.Event()
    go = threading.Event()

    def __init__(self) -> None:
        self.home = os.getpid()

    def __setstate__(self, state: dict[str, int]) -> None:
        """Be held up, unless this is home: a rank tries whether its value unpickles."""
        if state["home"] != os.getpid():
            self.unpickling.set()
            self.go.wait(60)


def give_held_up() -> HeldUp:
    """Give a value that takes its time to arrive."""
    return HeldUp()
