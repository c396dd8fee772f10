"""Which of a rank's standard streams something applies to."""

import re
from collections.abc import Mapping
from enum import STRICT, IntFlag
from typing import Final

from aioelastic._base.ranks import is_rank
from aioelastic._errors.exceptions import RanksError, SpecificationError, SpecificationTypeError

_FORM: Final = 'one digit of 0..3 for all ranks, as in "3", or rank:digit pairs, as in "0:3,1:0,12:1"'

# The digits are spelled out because \d also matches the digits of every other script.
_PAIR: Final = re.compile(r"([0-9]+):([0-3])")


# IntFlag on its own keeps unknown bits, so that Std(7) would be a member that nothing here understands.
class Std(IntFlag, boundary=STRICT):
    """The standard streams that a redirection or a tee applies to, as a bit mask.

    Example:
        >>> from aioelastic import Std
        >>> Std.OUT | Std.ERR == Std.ALL
        True
        >>> Std.ERR in Std.ALL
        True
    """

    NONE = 0
    """No stream."""

    OUT = 1
    """Standard output."""

    ERR = 2
    """Standard error."""

    ALL = OUT | ERR
    """Both streams."""

    @classmethod
    def from_str(cls, text: str) -> "Std | dict[int, Std]":
        """Read a mask, or a map of ranks to masks, from the text used on command lines.

        Args:
            text: A digit of 0..3, or pairs ``rank:digit`` joined by commas. No spaces.

        Returns:
            The mask for all ranks, or the masks of the ranks that the text names.

        Raises:
            SpecificationError: The text is anything else, or names a rank twice. It is a `ValueError` too.
            SpecificationTypeError: It is no text at all.

        Example:
            >>> from aioelastic import Std
            >>> Std.from_str("3") is Std.ALL
            True
            >>> Std.from_str("0:3,12:1") == {0: Std.ALL, 12: Std.OUT}
            True
        """
        if not isinstance(text, str):
            raise SpecificationTypeError(f"streams are given as text, not as {type(text).__name__}: {_FORM}")
        if re.fullmatch(r"[0-3]", text):
            return cls(int(text))
        streams: dict[int, Std] = {}
        for pair in text.split(","):
            rank, digit = _read_pair(pair, text)
            if rank in streams:
                raise SpecificationError(f"{_shown(text)} names rank {rank} twice; give {_FORM}")
            streams[rank] = cls(digit)
        return streams


def to_map(
    value_or_map: Std | int | Mapping[int, Std | int], nprocs: int, *, argument: str = "value_or_map"
) -> dict[int, Std]:
    """Expand one mask, or a map of some ranks to masks, to a map of every rank.

    Args:
        value_or_map: A mask for all ranks, or a map; its missing ranks get `Std.NONE`. The integers 0..3 are
            taken for the masks they are, booleans are not.
        nprocs: The number of ranks.
        argument: What the errors call the value.

    Returns:
        A new map of the ranks 0..nprocs-1, in that order.

    Raises:
        RanksError: The map names ranks that do not exist.
        SpecificationTypeError: The value, or one in the map, is no mask.
        SpecificationError: An integer outside 0..3, or a negative number of ranks.

    Example:
        >>> from aioelastic import Std, to_map
        >>> to_map({1: Std.ERR}, 2) == {0: Std.NONE, 1: Std.ERR}
        True
    """
    if isinstance(nprocs, bool) or not isinstance(nprocs, int):
        raise SpecificationTypeError(f"nprocs must be an int, not {type(nprocs).__name__}")
    if nprocs < 0:
        raise SpecificationError(f"nprocs must not be negative: {nprocs}")
    streams = checked_streams(value_or_map, argument)
    if isinstance(streams, Std):
        return dict.fromkeys(range(nprocs), streams)
    extra = [rank for rank in streams if not is_rank(rank, nprocs)]
    if extra:
        raise RanksError(argument, extra=extra, nprocs=nprocs)
    return {rank: streams.get(rank, Std.NONE) for rank in range(nprocs)}


def checked_streams(value_or_map: object, argument: str) -> Std | dict[int, Std]:
    """Copy a mask or a map of masks, with every mask made a `Std`; the ranks are not looked at."""
    if isinstance(value_or_map, Mapping):
        return {rank: _mask(value, f"{argument}[{rank!r}]") for rank, value in value_or_map.items()}
    return _mask(value_or_map, argument)


def _mask(value: object, argument: str) -> Std:
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecificationTypeError(
            f"{argument} must be Std.NONE, OUT, ERR or ALL, or map ranks to them; not {type(value).__name__}"
        )
    # Not left to the enum: it takes -1 for "all bits".
    if not Std.NONE <= value <= Std.ALL:
        raise SpecificationError(f"{argument} must be Std.NONE, OUT, ERR or ALL, which are 0..3")
    return Std(value)


def _read_pair(pair: str, text: str) -> tuple[int, int]:
    match = _PAIR.fullmatch(pair)
    if match is not None:
        try:
            return int(match[1]), int(match[2])
        except ValueError:  # Python refuses to read numbers of more than 4300 digits
            pass
    raise SpecificationError(f"cannot read streams from {_shown(text)}; give {_FORM}") from None


def _shown(text: str, limit: int = 100) -> str:
    return repr(text) if len(text) <= limit else f"{text[:limit]!r}..."
