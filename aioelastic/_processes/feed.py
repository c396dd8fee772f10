"""Telling a new process what it is to do, without waiting for it to read that."""

import asyncio
import os
from collections import deque
from collections.abc import Iterable

from aioelastic._base.defaults import CHUNK_BYTES
from aioelastic._base.private_descriptors import close_private, keep_private


class Feed:
    """Writes bytes into a pipe as fast as they are read at its other end.

    It stays open afterwards: by its end the process learns that the supervisor is gone
    (``multiprocessing.parent_process()``).

    Args:
        target: The writing end of the pipe; owned from now on.
    """

    def __init__(self, target: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._target: int | None = keep_private(target)
        self._pieces: deque[memoryview] = deque()
        os.set_blocking(target, False)

    def send(self, pieces: Iterable[bytes]) -> None:
        """Write these, then rest."""
        self._pieces.extend(memoryview(piece) for piece in pieces)
        if self._target is not None:
            self._write(self._target)
            if self._pieces:
                self._loop.add_writer(self._target, self._write, self._target)

    def close(self) -> None:
        """Stop, and close the pipe."""
        self._pieces.clear()
        if self._target is not None:
            self._loop.remove_writer(self._target)
            close_private(self._target)
            self._target = None

    def _write(self, target: int) -> None:
        try:
            while self._pieces:
                written = os.write(target, self._pieces[0][:CHUNK_BYTES])
                self._pieces[0] = self._pieces[0][written:]
                if self._pieces[0]:
                    return
                self._pieces.popleft()
        except BlockingIOError:
            return
        except BrokenPipeError:
            self._pieces.clear()  # the process has ended, which tells why
        self._loop.remove_writer(target)
