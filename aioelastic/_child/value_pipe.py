"""The rank's end of the pipe by which its value, or the record of its exception, reaches the supervisor.

One message, or none: a head with its kind and size, then the bytes.
"""

import os
import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

VALUE: Final = b"V"
"""A pickled value follows."""

BASIC_VALUE: Final = b"B"
"""A pickled value follows that consists of Python's basic types: unpickling it imports nothing and calls nothing."""

REPORT: Final = b"R"
"""What the rank would have written into its error file follows; it has none."""

HEAD: Final = struct.Struct("=cQ")
"""Kind, and bytes to come."""


class Message(NamedTuple):
    """What is sent."""

    kind: bytes
    """One of those above."""

    pieces: Sequence[bytes]
    """What follows, in pieces."""


def send(descriptor: int, message: Message) -> None:
    """Send the message and close the pipe."""
    try:
        for piece in (HEAD.pack(message.kind, sum(map(len, message.pieces))), *message.pieces):
            view = memoryview(piece)
            while view:
                view = view[os.write(descriptor, view) :]
    except BrokenPipeError:
        pass  # the supervisor is gone, or has given this rank up
    finally:
        os.close(descriptor)
