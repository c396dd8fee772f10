"""Checking what says where in the world an agent stands, and where its ranks meet (pure)."""

import re
import socket
from typing import Final

from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError

LAST_PORT: Final = 65535

_ADDRESS: Final = re.compile(r"[^\s\x00-\x1f\x7f\[\]]+")
"""What a host's name or address may look like from afar; the ranks find out whether it leads anywhere."""


def checked_number(argument: str, value: object, least: int, most: int | None = None) -> int:
    """Give a whole number within bounds.

    Raises:
        SpecificationTypeError: It is no `int`.
        SpecificationError: It is out of bounds.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecificationTypeError(f"{argument} must be an int, not {type(value).__name__}")
    if value < least or (most is not None and value > most):
        wanted = f"{least} or more" if most is None else f"{least}..{most}" if most > least else str(least)
        raise SpecificationError(f"{argument} is {value}: give {wanted}")
    return int(value)


def checked_port(argument: str, value: object) -> int:
    """Give a port that somebody can be reached at.

    Raises:
        SpecificationTypeError: It is no `int`.
        SpecificationError: There is no such port, or it is 0, which only a listener can ask for.
    """
    return checked_number(argument, value, 1, LAST_PORT)


def checked_address(argument: str, value: object) -> str:
    """Give a host's name or address as the ranks want it: an IPv6 address without its brackets.

    Raises:
        SpecificationTypeError: It is no text.
        SpecificationError: It can be neither a host's name nor an address.

    Example:
        >>> checked_address("master_addr", "[::1]")
        '::1'
    """
    if not isinstance(value, str):
        raise SpecificationTypeError(f"{argument} must be a str, not {type(value).__name__}")
    bracketed = value.startswith("[") and value.endswith("]")
    address = value[1:-1] if bracketed else value
    if not _ADDRESS.fullmatch(address):
        raise SpecificationError(f"{argument} is {value!r}: give the name of a host or its address, without spaces")
    if (bracketed or ":" in address) and not _is_ipv6(address):
        raise SpecificationError(
            f"{argument} is {value!r}, which is no IPv6 address: give a host without a port, "
            "or an address such as [fd00::1]"
        )
    return address


def _is_ipv6(address: str) -> bool:
    try:
        socket.inet_pton(socket.AF_INET6, address.partition("%")[0])
    except (OSError, ValueError):
        return False
    return True
