"""The supervisor's end of the pipe by which a function rank sends its value."""

import asyncio
import contextlib
import fcntl
import mmap
import os
import pickle
from typing import Any, Final

from aioelastic._base.defaults import CHUNK_BYTES, PIPE_BYTES
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._child.value_pipe import BASIC_VALUE, HEAD, REPORT, VALUE

_STEP: Final = 512 * 1024
"""Bytes copied out of a message before their memory is given back; a multiple of every page size."""


class ValueReceiver:
    """Reads one rank's message on the event loop, a chunk per turn, into memory of just its size.

    Args:
        source: The reading end of its pipe; owned from now on.
    """

    def __init__(self, source: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._source: int | None = keep_private(source)
        self._head = bytearray()
        self._body: mmap.mmap | None = None
        self._kind = b""
        self._size = 0
        self._received = 0
        self._problem = ""
        os.set_blocking(source, False)
        self._loop.add_reader(source, self._read)

    def close(self) -> None:
        """Take what is in the pipe now, and close it; a child of the rank's may hold it for ever."""
        while self._source is not None and self._read():
            pass
        self._stop()

    def discard(self) -> None:
        """Close the pipe and forget what has come."""
        self._stop()
        self._free()

    @property
    def report(self) -> bytes:
        """What came in place of an error file; ``b""`` for nothing."""
        if self._kind != REPORT or not self._is_complete():
            return b""
        return b"" if self._body is None else self._body[: self._size]

    def problem(self) -> str:
        """Say why there is no value, or give ``""`` when there is one."""
        if self._problem:
            return self._problem
        if self._kind in {VALUE, BASIC_VALUE} and self._is_complete():
            return ""
        if self._kind == REPORT:
            return "It raised an exception, and ended with exit code 0 all the same."
        if self._received:
            return f"It ended when {self._received} of the {self._size} bytes of its value had arrived."
        return (
            "It ended with exit code 0 but returned no value: its process was ended by os._exit(0) or by C code, "
            "not by the function's return."
        )

    @property
    def is_small(self) -> bool:
        """Whether the value, if there is one, can be unpickled on the event loop."""
        return self._kind == BASIC_VALUE and self._size <= CHUNK_BYTES

    def unpickle(self) -> Any:
        """Make the value of what has come (blocking), giving the memory back on the way.

        Raises:
            Exception: Whatever unpickling raises.
        """
        body = self._body
        if body is None:
            raise EOFError("there is no value")
        try:
            return pickle.load(_Message(body))  # noqa: S301 - our own rank has sent it
        finally:
            self._free()

    def _is_complete(self) -> bool:
        return len(self._head) == HEAD.size and self._received == self._size

    def _read(self) -> bool:
        """Take a chunk; tell whether there was one."""
        source = self._source
        if source is None:
            return False
        try:
            count = self._read_head(source) if self._body is None else self._read_body(source, self._body)
        except BlockingIOError:
            return False
        if not count or self._problem or (self._size and self._received == self._size):
            self._stop()
        return bool(count)

    def _read_head(self, source: int) -> int:
        head = os.read(source, HEAD.size - len(self._head))
        self._head += head
        if len(self._head) == HEAD.size:
            self._kind, self._size = HEAD.unpack(self._head)
            try:
                # Private, or giving pages back would not free them; and by the system, or malloc would keep them.
                self._body = mmap.mmap(-1, max(1, self._size), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
            except (OSError, OverflowError, ValueError) as error:
                self._problem = f"There is no memory for its value of {self._size} bytes ({error})."
            if self._size > CHUNK_BYTES and hasattr(fcntl, "F_SETPIPE_SZ"):
                with contextlib.suppress(OSError):  # over the user's share of pipe memory: the default size does, too
                    fcntl.fcntl(source, fcntl.F_SETPIPE_SZ, PIPE_BYTES)
        return len(head)

    def _read_body(self, source: int, body: mmap.mmap) -> int:
        with memoryview(body) as view, view[self._received : min(self._size, self._received + CHUNK_BYTES)] as chunk:
            count = os.readv(source, [chunk])
        self._received += count
        return count

    def _stop(self) -> None:
        if self._source is not None:
            self._loop.remove_reader(self._source)
            close_private(self._source)
            self._source = None

    def _free(self) -> None:
        body, self._body = self._body, None
        if body is not None:
            body.close()


class _Message:
    """A message as the file that it is unpickled from; what was read is given back to the system.

    So the memory needed is that of the value and a step, not twice that of the value.
    """

    def __init__(self, body: mmap.mmap) -> None:
        self._body = body
        self._freed = 0

    def read(self, count: int) -> bytes:
        """Give so many bytes."""
        data = self._body.read(count)
        self._free_read()
        return data

    def readline(self) -> bytes:
        """Give a line; old opcodes have some."""
        return self._body.readline()

    def readinto(self, target: Any) -> int:
        """Fill a buffer: large bytes and arrays are unpickled by this."""
        with memoryview(target).cast("B") as view:
            taken = 0
            while taken < len(view):
                begin = self._body.tell()
                with memoryview(self._body) as body, body[begin : begin + min(_STEP, len(view) - taken)] as piece:
                    count = len(piece)
                    view[taken : taken + count] = piece
                if not count:
                    break
                taken += count
                self._body.seek(begin + count)
                self._free_read()
        return taken

    def _free_read(self) -> None:
        end = self._body.tell() // _STEP * _STEP
        if end > self._freed and hasattr(mmap, "MADV_DONTNEED"):
            with contextlib.suppress(OSError):
                self._body.madvise(mmap.MADV_DONTNEED, self._freed, end - self._freed)
            self._freed = end
