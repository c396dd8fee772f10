"""What function ranks run in the tests of their world, output and end: light, so that a rank loads it in no time."""

# ruff: noqa: PLC0415 - what only some ranks need is imported by those

import contextlib
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NoReturn

LOADED_WITH: Final = os.environ.get("FUNCTION_WORLD")
"""What a variable was when a rank, or a test, imported this module."""


def wait_for(sign: str) -> None:
    """Wait for a file."""
    while not Path(sign).exists():
        time.sleep(0.01)


def report(ready: str, **facts: Any) -> None:
    """Tell the test by a file that is whole as soon as it exists."""
    made = Path(f"{ready}.{os.getpid()}")
    made.write_text(repr(facts))
    made.rename(ready)


def call(function: Callable[..., Any], *args: Any) -> Any:
    """Call another function: each rank of a group its own."""
    return function(*args)


# The world.


def place() -> dict[str, int]:
    """Give this rank's place among the processes."""
    return {"pid": os.getpid(), "parent": os.getppid(), "group": os.getpgrp(), "session": os.getsid(0)}


def read_stdin() -> tuple[bytes, str, str]:
    """Give what there is on standard input, and what it is."""
    return os.read(0, 1), sys.stdin.read(), str(Path("/proc/self/fd/0").readlink())


def print_flags(size: int) -> list[bool]:
    """Print much, and tell which of the three descriptors block."""
    flags = [os.get_blocking(number) for number in range(3)]
    print("x" * size)  # noqa: T201 - output is the purpose
    return flags


def signals() -> dict[str, Any]:
    """Give everything about this rank's signals."""
    handlers = {int(number): signal.getsignal(number) for number in signal.valid_signals()}
    # 32 to 34 are the C library's own.
    odd = {number for number, each in handlers.items() if each is not signal.SIG_DFL and not 32 <= number <= 34}
    return {
        "status": Path("/proc/self/status").read_text(),
        "odd": odd,
        "interrupt": handlers[signal.SIGINT] is signal.default_int_handler,
        "wakeup": signal.set_wakeup_fd(-1),
    }


def variables() -> dict[str, dict[str, str]]:
    """Give the environment as Python has it, and as a child gets it."""
    import subprocess

    listed = subprocess.run(["env", "-0"], capture_output=True, text=True, check=True).stdout
    childs = dict(entry.partition("=")[::2] for entry in listed.split("\0") if entry)
    return {"python": dict(os.environ), "child": childs}


def loaded_with() -> str | None:
    """Give what a variable was when this module was imported."""
    return LOADED_WITH


def directory() -> str:
    """Give the working directory."""
    return str(Path.cwd())


def process_of_multiprocessing() -> dict[str, Any]:
    """Give what `multiprocessing` says of this rank."""
    parent, current = multiprocessing.parent_process(), multiprocessing.current_process()
    assert parent is not None
    return {"parent": parent.pid, "parent alive": parent.is_alive(), "name": current.name, "daemon": current.daemon}


def inner_value(queue: "multiprocessing.Queue[int]", value: int) -> None:
    """Give a value by a queue."""
    queue.put(value)


def runs_children() -> int:
    """Run two processes of `multiprocessing` and add what they give."""
    queue: multiprocessing.Queue[int] = multiprocessing.Queue()
    children = [multiprocessing.Process(target=inner_value, args=(queue, value)) for value in (1, 2)]
    for child in children:
        child.start()
    total = queue.get() + queue.get()
    for child in children:
        child.join()
    return total


def runs_threads() -> list[int]:
    """Run two threads."""
    found: list[int] = []
    threads = [threading.Thread(target=found.append, args=(value,)) for value in (1, 2)]
    for thread in threads:
        thread.start()
        thread.join()
    return found


def loop_state() -> dict[str, bool]:
    """Tell what is left of the supervisor's event loop, then run one."""
    import asyncio
    import warnings

    try:
        asyncio.get_running_loop()
    except RuntimeError:
        running = False
    else:
        running = True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        try:
            loop = asyncio.get_event_loop_policy().get_event_loop()
        except RuntimeError:
            inherited = False
        else:
            inherited = loop.is_running()
            loop.close()

    async def work() -> bool:
        await asyncio.sleep(0.001)
        return True

    return {"running": running, "inherited": inherited, "works": asyncio.run(work())}


def double(value: int) -> int:
    """Give twice the value."""
    return 2 * value


async def runs_groups(method: str, folder: str) -> tuple[dict[int, int], str]:
    """Run a group of functions and one of commands, from within a rank."""
    from aioelastic import Std, start_processes

    async with start_processes("inner", double, {0: (1,), 1: (2,)}, start_method=method) as context:
        functions = await context.wait()
    async with start_processes("inner", "echo", {0: ("hello",)}, log_dir=folder, redirects=Std.OUT) as context:
        commands = await context.wait()
    assert functions is not None
    assert commands is not None
    functions.raise_for_failures()
    return functions.return_values, Path(commands.stdouts[0]).read_text()


def open_files(ready: str, go: str) -> dict[int, str]:
    """Give all open descriptors, once every rank is there."""
    Path(ready).touch()
    wait_for(go)
    return open_files_now()


def open_files_now() -> dict[int, str]:
    """Give all open descriptors."""
    found = {}
    for entry in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(OSError):  # the one that lists the folder
            found[int(entry.name)] = str(entry.readlink())
    return found


# Output.


def print_both(text: str) -> None:
    """Print to both streams."""
    print(text)  # noqa: T201 - output is the purpose
    print(text, file=sys.stderr)  # noqa: T201 - output is the purpose


def c_print(text: str) -> None:
    """Print as C code does."""
    import ctypes

    ctypes.CDLL(None).printf(b"%s", text.encode())


def print_in_every_way() -> None:
    """Print by Python, C, the descriptor and a grandchild, in turn."""
    import subprocess

    for _ in range(3):
        print("python", end="|")  # noqa: T201 - output is the purpose
        c_print("c|")
        os.write(1, b"descriptor|")
        subprocess.run(["printf", "grandchild|"], check=True)


def print_partial_lines() -> None:
    """Print on both streams by Python, and by C, without an end of the line."""
    print("python|", end="")  # noqa: T201 - output is the purpose
    print("python|", end="", file=sys.stderr)  # noqa: T201 - output is the purpose
    c_print("c|")


def print_and_return() -> None:
    """End by returning."""
    print_partial_lines()


def print_and_raise() -> NoReturn:
    """End by an exception."""
    print_partial_lines()
    raise ZeroDivisionError("the reason")


def print_and_exit() -> NoReturn:
    """End by `sys.exit`."""
    print_partial_lines()
    sys.exit(3)


def print_and_drop() -> NoReturn:
    """End without any cleaning up."""
    print_partial_lines()
    os._exit(4)


def print_and_die() -> None:
    """End by the default action of SIGTERM."""
    print_partial_lines()
    os.kill(os.getpid(), signal.SIGTERM)
    signal.pause()


def print_and_abort() -> None:
    """End by a crash in C code."""
    import ctypes

    print_partial_lines()
    ctypes.CDLL(None).abort()


def print_interrupted(size: int) -> int:
    """Print much at once while a timer interrupts every write, and tell how often it did."""
    interruptions = []
    signal.signal(signal.SIGALRM, lambda *_: interruptions.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    print("x" * size)  # noqa: T201 - output is the purpose
    signal.setitimer(signal.ITIMER_REAL, 0)
    return len(interruptions)


def log_a_line(text: str) -> None:
    """Log a line by whatever handlers there are."""
    import logging

    logging.getLogger("function_worlds").warning(text)


# The end.


def say_ready_and(rest: Callable[[], object], ready: str) -> None:
    """Tell the test, then go on."""
    report(ready, pid=os.getpid())
    rest()


def pause() -> None:
    """Wait in Python."""
    while True:
        # Python would sleep on after a signal that came between its last look and the system call.
        time.sleep(0.05)


def hang_in_c() -> None:
    """Wait in C code for ever: no handler of Python's would run."""
    import ctypes

    library = ctypes.PyDLL(None)  # keeps the interpreter's lock, and is not interrupted
    while True:
        library.poll(None, 0, -1)


def ignore_sigterm() -> None:
    """Be deaf."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pause()


def sleep_until_told(ready: str) -> None:
    """Say that it runs, and wait."""
    say_ready_and(pause, ready)


def hang_until_killed(ready: str) -> None:
    """Say that it runs, and hang in C code."""
    import ctypes  # noqa: F401 - so that nothing but that call is left when it says so

    say_ready_and(hang_in_c, ready)


def be_deaf(ready: str) -> None:
    """Ignore SIGTERM, say so, and wait."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    say_ready_and(pause, ready)


def tell_signal(ready: str, told: str, number: int) -> None:
    """Handle a signal by telling of it and leaving well."""

    def leave(received: int, _: object) -> None:
        report(told, number=received)
        sys.exit(0)

    signal.signal(number, leave)
    say_ready_and(pause, ready)


def call_leaving_children(ready: str, deaf: bool, fail: bool) -> None:
    """Leave a forked child and a command behind, then return or raise."""
    import subprocess

    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    command = subprocess.Popen(["sleep", "60"])
    forked = os.fork()
    if forked == 0:
        pause()
    report(ready, children=[forked, command.pid])
    if fail:
        raise ZeroDivisionError


def wait_and_return(ready: str, go: str) -> str:
    """Say that it runs, and return when it is told to."""
    report(ready, pid=os.getpid())
    wait_for(go)
    return "returned"


def wait_and_exit(go: str, code: int) -> NoReturn:
    """Exit with a code when it is told to."""
    wait_for(go)
    sys.exit(code)


def size_of(data: bytes) -> int:
    """Give how large an argument is."""
    return len(data)


class Deadly:
    """Ends the process that unpickles it, before it has read what comes behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os._exit, (7,)


def never(*args: object) -> NoReturn:
    """Is not to be called."""
    raise AssertionError(args)


def leave_a_daemon(folder: str) -> None:
    """Leave a copy of this process in a session of its own, without a parent, then say so and ignore SIGTERM."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not os.fork():
        os.setsid()
        if os.fork():
            os._exit(0)
        Path(folder, str(os.getpid())).touch()
        signal.pause()
    signal.pause()
