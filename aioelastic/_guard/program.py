"""The guard's program: waits for the end of its supervisor, and holds what will be needed then.

It is run with all signals blocked and in a session of its own, so nothing that is meant for the supervisor reaches it
(`aioelastic._guard.guard`). It has no streams and says nothing.

What it is told comes over a socket, in frames of one size: what to do and the token of the group, with descriptors:

``W``  watch a group: its ledger (`aioelastic._guard.ledger`)
``S``  streams of a rank: pairs of the reading end of a pipe and the file that is to get what is left in it
``D``  drop a group: it is over

The socket's end means that the supervisor is gone, or has become another program (exec). Its handle tells the same,
should a copy of the socket's other end live on in a process that some C code has forked.

Only what waiting takes is imported at first: not `socket`, which brings a dozen modules, and not `os`, which takes a
millisecond and is made of `posix`, which the interpreter has in itself. The rest is imported after a quiet second, long
before it is needed in most cases: a short group does not pay for it, and if this library is replaced by another version
meanwhile, what the guard needs is here.
"""

import _socket
import posix
import select
import sys

FRAME_BYTES = 17
"""One letter, and a token of 16 digits."""

MOST_DESCRIPTORS = 252
"""Descriptors in one frame; the kernel takes one more (SCM_MAX_FD, unix(7)), but streams come in pairs."""

QUIET = 1.0
"""Seconds after which the guard prepares for its work."""

_DESCRIPTOR_BYTES = 4
"""Size of a C int, as which descriptors are sent."""


class Charge:
    """A group in the guard's charge.

    Attributes:
        ledger: Descriptor of its ledger.
        streams: Reading end of a pipe -> the file that is to get what is left in it.
    """

    def __init__(self, ledger: int) -> None:
        self.ledger = ledger
        self.streams: dict[int, int] = {}


def main(messages_descriptor: int, supervisor: int, package_folder: str) -> None:
    """Wait for the supervisor's end, then end what it has left behind.

    Args:
        messages_descriptor: Our end of the socket.
        supervisor: Its process id; it is our parent.
        package_folder: The folder that aioelastic is imported from.
    """
    messages = _socket.socket(fileno=messages_descriptor)
    charges: dict[str, Charge] = {}
    poller = select.poll()
    poller.register(messages_descriptor, select.POLLIN)
    try:  # noqa: SIM105 - contextlib is one more import
        poller.register(posix.pidfd_open(supervisor), select.POLLIN)
    except (AttributeError, OSError):
        pass  # no handles here, or it is gone already; the socket tells as well
    sys.path.append(package_folder)
    while posix.getppid() == supervisor:
        ready = [descriptor for descriptor, _ in poller.poll(QUIET * 1000 if _is_unprepared() else None)]
        if not ready:
            _prepare()
        elif messages_descriptor not in ready or not _obey(messages, charges):
            break
    messages.setblocking(False)
    try:
        while _obey(messages, charges):
            pass
    except OSError:
        pass  # that was all
    _prepare()
    sys.modules["aioelastic._guard.aftermath"].end_orphans(charges)


def _is_unprepared() -> bool:
    return "aioelastic._guard.aftermath" not in sys.modules


def _prepare() -> None:
    __import__("aioelastic._guard.aftermath")


def _obey(messages: _socket.socket, charges: dict[str, Charge]) -> bool:
    """Do what the next frame says; tell whether there was one."""
    frame, attached, _, _ = messages.recvmsg(FRAME_BYTES, _socket.CMSG_SPACE(MOST_DESCRIPTORS * _DESCRIPTOR_BYTES))
    if not frame:
        return False
    descriptors = [
        int.from_bytes(data[start : start + _DESCRIPTOR_BYTES], sys.byteorder)
        for _, _, data in attached
        for start in range(0, len(data), _DESCRIPTOR_BYTES)
    ]
    what, token = frame[:1], frame[1:].decode()
    if what == b"W" and descriptors:
        charges[token] = Charge(descriptors.pop())
    elif what == b"S" and token in charges:
        charges[token].streams.update(zip(descriptors[::2], descriptors[1::2], strict=False))
    elif what == b"D" and token in charges:
        charge = charges.pop(token)
        for descriptor in (charge.ledger, *charge.streams, *charge.streams.values()):
            posix.close(descriptor)
    return True
