"""The program's fork server: a clean process, forked for each rank that asks for it.

It is `multiprocessing`'s, preloads what the program has asked `multiprocessing` to preload, and ends with the program.
But it is one of our own, that has also loaded what each rank needs.
"""

import contextlib
import os
import threading
from collections.abc import Iterator
from multiprocessing import forkserver, get_start_method, resource_tracker, set_start_method
from typing import Final

_PRELOADED: Final = ("aioelastic._child.function_process", "ctypes", "faulthandler")
"""What each rank needs."""

_lock = threading.Lock()
_server: forkserver.ForkServer | None = None


def request_process(descriptors: list[int]) -> tuple[int, int]:
    """Have the server fork a process, starting the server if there is none (blocking).

    Args:
        descriptors: What the process is given, as `multiprocessing.forkserver.get_inherited_fds`.

    Returns:
        The reading end of a pipe that tells the process id, then its exit status; and the writing end of one from
        which the process reads what it is to do.

    Raises:
        OSError: The server cannot be started or reached.
        ValueError: Too many descriptors.
    """
    global _server  # noqa: PLW0603 - there is one per program, as there is in multiprocessing
    with _lock:
        if _server is None:
            _server = forkserver.ForkServer()
            asked = forkserver._forkserver._preload_modules  # type: ignore[attr-defined]  # noqa: SLF001 - not told in public
            _server.set_forkserver_preload([*asked, *_PRELOADED])
        try:
            with default_method_left_open():
                return _server.connect_to_new_process(descriptors)
        except ChildProcessError:
            # Another part of the program has reaped it (os.wait()), so it has ended, and its number says nothing.
            _server = None
    return request_process(descriptors)


@contextlib.contextmanager
def default_method_left_open() -> Iterator[None]:
    """Let the program choose its default start method later, although `multiprocessing` settles it meanwhile."""
    asked = get_start_method(allow_none=True)
    try:
        yield
    finally:
        if asked is None:
            set_start_method(None, force=True)


def start_resource_tracker() -> None:
    """Start the process by which `multiprocessing` cleans up shared memory and semaphores, if it does not run."""
    resource_tracker.ensure_running()


def _forget() -> None:
    """Let a forked child have a server of its own: this one is not its child, and the lock may be held for ever."""
    global _lock, _server  # noqa: PLW0603 - see above
    _lock = threading.Lock()
    _server = None


os.register_at_fork(after_in_child=_forget)
