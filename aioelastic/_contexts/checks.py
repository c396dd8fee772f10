"""Checking a group's arguments before anything exists (pure)."""

import math
import os
import signal
from collections.abc import Mapping

from aioelastic._base.aliases import START_METHODS, StartMethod
from aioelastic._base.signals import NOT_ENDING, signal_name
from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._logs.specs import LogsSpecs
from aioelastic._processes.command_line import require_ranks


def checked_seconds(argument: str, value: object) -> float:
    """Give a number of seconds that is not negative.

    Raises:
        SpecificationTypeError: It is no number.
        SpecificationError: It is negative, not a number at all (NaN), or more than a `float` can hold.
    """
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise SpecificationTypeError(f"{argument} must be a number of seconds, not {type(value).__name__}")
    try:
        seconds = float(value)
    except OverflowError:
        raise SpecificationError(f"{argument} is too large a number: give math.inf for no limit") from None
    if math.isnan(seconds) or seconds < 0:
        raise SpecificationError(f"{argument} is {value}: give 0 seconds or more")
    return seconds


def checked_limit(argument: str, value: object) -> float | None:
    """Give a limit in seconds; ``None``, or a negative number as in torch, for none.

    Raises:
        SpecificationTypeError: It is no number.
        SpecificationError: It is not a number at all (NaN), or more than a `float` can hold.
    """
    if value is None:
        return None
    return None if isinstance(value, int | float) and value < 0 else checked_seconds(argument, value)


def checked_signal(argument: str, value: object) -> int:
    """Give the number of a signal that a process can be sent.

    Raises:
        SpecificationTypeError: It is neither a `signal.Signals` nor a number.
        SpecificationError: The system has no such signal, or it would stop the ranks and not end them.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise SpecificationTypeError(f"{argument} must be a signal such as signal.SIGTERM, not {type(value).__name__}")
    number = int(value)
    if number not in signal.valid_signals():
        raise SpecificationError(f"{argument} is {number}, which is no signal here: give one such as signal.SIGTERM")
    if number in NOT_ENDING:
        raise SpecificationError(
            f"{argument} is {signal_name(number)}, which ends no process: give one such as SIGTERM"
        )
    return number


def check_entrypoint(value: object) -> None:
    """See that ranks can be made of something: a command or a function.

    Raises:
        SpecificationTypeError: It is neither.
    """
    if not isinstance(value, str | os.PathLike) and not callable(value):
        kind = type(value).__name__
        raise SpecificationTypeError(f"entrypoint is of type {kind}: give a command (text or a path) or a function")


def check_logs_specs(value: object, nprocs: int) -> None:
    """Check where the output of a group is to go.

    Raises:
        SpecificationTypeError: It is no `LogsSpecs`.
        RanksError: It names ranks that are not there.
    """
    if not isinstance(value, LogsSpecs):
        raise SpecificationTypeError(f"logs_specs must be a LogsSpecs, not {type(value).__name__}")
    for argument in ("redirects", "tee", "local_ranks_filter"):
        streams = getattr(value, argument)
        if isinstance(streams, Mapping | frozenset):
            require_ranks(argument, dict.fromkeys(streams), nprocs, complete=False)


def checked_method(value: object) -> StartMethod:
    """Give a start method.

    Raises:
        SpecificationError: There is none of that name.
    """
    for known in START_METHODS:
        if value == known:
            return known
    raise SpecificationError(f"start_method is {value!r}: give one of {', '.join(START_METHODS)}")


def checked_prefixes(name: str, prefixes: object, nprocs: int) -> dict[int, str]:
    """Give the console prefix of every rank: its own, or ``[name rank]:``.

    Raises:
        RanksError: A prefix is for a rank that does not exist.
        SpecificationTypeError: A prefix is no text.
        SpecificationError: A prefix has a line end, which would tear every line, or a character that no output can
            have.
    """
    own: Mapping[int, object] = {}
    if prefixes is not None:
        require_ranks("log_line_prefixes", prefixes, nprocs, complete=False)
        own = prefixes  # type: ignore[assignment]  # require_ranks has just checked it
    for rank, prefix in own.items():
        if not isinstance(prefix, str):
            raise SpecificationTypeError(f"log_line_prefixes[{rank}] must be a str, not {type(prefix).__name__}")
        if "\n" in prefix or "\r" in prefix:
            raise SpecificationError(f"log_line_prefixes[{rank}] has a line end: a prefix is part of a line")
        _require_encodable(f"log_line_prefixes[{rank}]", prefix)
    return {rank: str(own.get(rank, f"[{name}{rank}]:")) for rank in range(nprocs)}


def checked_name(name: object) -> str:
    """Give a group's name.

    Raises:
        SpecificationTypeError: It is no text.
        SpecificationError: It is more than one line, or has a character that no output can have.
    """
    if not isinstance(name, str):
        raise SpecificationTypeError(f"name must be a str, not {type(name).__name__}")
    if "\n" in name or "\r" in name:
        raise SpecificationError(f"name is {name!r}: it is shown before every line, so it must be one line itself")
    _require_encodable("name", name)
    return name


def _require_encodable(argument: str, text: str) -> None:
    """See that a text can be written; a surrogate of ``os.fsdecode`` stands for a byte, another one for nothing."""
    try:
        text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError as error:
        raise SpecificationError(f"{argument} is {text!r}: no output has {text[error.start]!r}") from error
