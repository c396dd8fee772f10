"""A port for rank 0 to listen on, which nobody else takes before it does."""

import errno
import os
import re
import socket
from collections.abc import Container, Iterator
from typing import Final

from aioelastic._base.aliases import StrPath

_KERNEL_SETTINGS: Final = "/proc/sys/net/ipv4"

_COMMON_EPHEMERAL: Final = range(32768, 65536)
"""What connections may take where the kernel does not say: Linux's default, and IANA's range, which macOS keeps to."""

_FIRST_UNPRIVILEGED: Final = 1024
_END: Final = 65536

_TRIES: Final = 200
"""Ports looked at before the kernel is asked for one; each takes some microseconds."""

_FAMILIES: Final = {socket.AF_INET: "0.0.0.0", socket.AF_INET6: "::"}  # noqa: S104 - so a port of any interface is seen

_NOT_HERE: Final = {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL}
"""How a machine says that it has no addresses of a family."""


def choose_port(unlike: Container[int] = (), settings: StrPath = _KERNEL_SETTINGS) -> int:
    """Choose by chance a port that is free on all interfaces, in IPv4 and IPv6.

    It is none that the kernel gives to outgoing connections by itself (``ip_local_port_range``): one of those may
    be taken between this choice and the moment when rank 0 listens. Nor is it one that was reserved
    (``ip_local_reserved_ports``). Only where there is no other, the kernel is asked for one of its own.

    Args:
        unlike: Ports not to choose.
        settings: The directory with the kernel's settings.

    Returns:
        The port; nothing holds it.

    Raises:
        OSError: The kernel gives no port.
    """
    candidates = list(_candidates(settings))
    count = sum(map(len, candidates))
    for _ in range(_TRIES if count else 0):
        port = _pick(candidates, int.from_bytes(os.urandom(4), "big") % count)
        if port not in unlike and _is_free(port):
            return port
    return _ask_kernel(unlike)


def _candidates(settings: StrPath) -> Iterator[range]:
    """Give the unprivileged ports that are neither for connections nor reserved."""
    first = _FIRST_UNPRIVILEGED
    if match := re.fullmatch(r"([0-9]{1,5})\s*", _read(settings, "ip_unprivileged_port_start")):
        # Containers often have 0 there; what is below 1024 is somebody's service all the same.
        first = max(first, int(match[1]))
    taken = [_ephemeral(settings), *_reserved(settings)]
    for ports in sorted(taken, key=lambda each: each.start):
        if first < ports.start:
            yield range(first, min(ports.start, _END))
        first = max(first, ports.stop)
    if first < _END:
        yield range(first, _END)


def _ephemeral(settings: StrPath) -> range:
    """Give the ports that outgoing connections get."""
    if match := re.fullmatch(r"([0-9]{1,5})\s+([0-9]{1,5})\s*", _read(settings, "ip_local_port_range")):
        return range(int(match[1]), int(match[2]) + 1)
    return _COMMON_EPHEMERAL


def _reserved(settings: StrPath) -> Iterator[range]:
    """Give the ports that an administrator wants to be left alone, written as in ``8080,9000-9010``."""
    for match in re.finditer(r"([0-9]{1,5})(?:-([0-9]{1,5}))?", _read(settings, "ip_local_reserved_ports")):
        yield range(int(match[1]), int(match[2] or match[1]) + 1)


def _read(settings: StrPath, name: str) -> str:
    try:
        with open(f"{os.fspath(settings)}/{name}", encoding="ascii", errors="replace") as file:  # noqa: PTH123 - see paths
            return file.read()
    except OSError:
        return ""


def _pick(candidates: list[range], index: int) -> int:
    for ports in candidates:
        if index < len(ports):
            return ports[index]
        index -= len(ports)
    raise IndexError(index)


def _is_free(port: int) -> bool:
    for family, everywhere in _FAMILIES.items():
        try:
            probe = socket.socket(family, socket.SOCK_STREAM)
        except OSError:
            # No such family; or no descriptor, and then the start of the ranks has a better word for it.
            continue
        with probe:
            # Without SO_REUSEADDR, so that a port counts as taken while old connections to it fade away.
            if family is socket.AF_INET6:
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
            try:
                probe.bind((everywhere, port))
            except OSError as error:
                if error.errno not in _NOT_HERE:
                    return False
    return True


def _ask_kernel(unlike: Container[int]) -> int:
    """Give a port that the kernel chooses among those for connections."""
    port = 0
    for _ in range(_TRIES):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.bind(("", 0))
            port = int(probe.getsockname()[1])
        if port not in unlike and _is_free(port):
            break
    return port
