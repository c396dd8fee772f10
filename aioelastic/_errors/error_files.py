"""Reading and writing ``error.json``, the note in which a rank says why it failed.

The format is PyTorch's, so that the tools of either side read the files of the other. PyTorch reads two forms
of it (``ProcessFailure`` in ``torch.distributed.elastic.multiprocessing.errors``)::

    {"message": {"message": "ValueError: x",
                 "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1700000000"}}}
    {"message": "something failed", "timestamp": 10}

Ours adds ``timestamp_ns`` to ``extraInfo``: the same time in nanoseconds, as a string of digits.

This module runs inside worker processes, before and after code of the user's.
"""

# json and pathlib cost a rank 10 ms each, and most ranks never fail.
# ruff: noqa: PLC0415, PTH105, PTH108, PTH118, PTH120, PTH123

import os
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

ERROR_FILE_VARIABLE: Final = "TORCHELASTIC_ERROR_FILE"
"""The variable in which a rank finds the path of its error file; PyTorch's own ``record`` reads it too."""

READ_LIMIT: Final = 16 * 1024 * 1024
"""Bytes read of an error file at most; room for the largest one that `written_texts` lets through."""

TEXT_LIMIT: Final = 512 * 1024
"""Characters kept of one text when writing; JSON makes 12 bytes of one at worst, and there are two texts."""

DEPTH_LIMIT: Final = 100
"""Levels of nesting taken from an error file; more would break ``pickle`` and ``repr`` of what was read."""

_LONGEST_TIME: Final = 40
"""Characters of a time written as text; nanoseconds have 19."""

_LATEST_TIME: Final = 253_402_000_000.0
"""A day before the year 10000, where ``datetime`` ends."""


# A named tuple and no dataclass: the module dataclasses imports inspect, 20 ms in each rank.
class ErrorFile(NamedTuple):
    """What an error file says, and what is wrong with it."""

    data: dict[str, Any]
    """The whole JSON object; ``{}`` when there is none."""

    message: str
    """The innermost message, as in ``"ValueError: x"``; ``""`` when there is none."""

    traceback: str
    """The text of the traceback; ``""`` when there is none."""

    timestamp: float | None
    """Seconds since 1970, or ``None`` when the file does not say."""

    subsecond: bool
    """Whether the time is finer than whole seconds."""

    problem: str
    """What is wrong with the file, in words that go on from "the error file ..."; ``""`` when nothing is."""


def read_error_file(path: str) -> ErrorFile | None:
    """Read an error file, whatever is in its place.

    Never raises and never blocks: a pipe, a folder, a symbolic link, a huge, torn or nonsensical file give an
    `ErrorFile` whose ``problem`` says so.

    Args:
        path: Where the file may be.

    Returns:
        What it says, or ``None`` when there is no such file.

    Example:
        >>> read_error_file("/no/such/error.json") is None
        True
    """
    try:
        content = read_regular(path, READ_LIMIT + 1)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError) as error:
        return _unusable(f"could not be read ({getattr(error, 'strerror', None) or error})")
    if len(content) > READ_LIMIT:
        return _unusable(f"is larger than {READ_LIMIT >> 20} MiB{_beginning(content)}")
    return parse_error_file(content)


def parse_error_file(content: bytes) -> ErrorFile:
    """Understand the bytes of an error file; never raises.

    Args:
        content: Any bytes.

    Returns:
        What they say, and what is wrong with them.

    Example:
        >>> parse_error_file(b'{"message": "lost", "timestamp": 10}').message
        'lost'
        >>> parse_error_file(b"").problem
        'is empty'
    """
    import json

    if not content.strip():
        return _unusable("is empty")
    try:
        data = json.loads(content.decode("utf-8-sig", "replace"))
    except ValueError as error:
        return _unusable(f"is torn or no JSON ({error}){_beginning(content)}")
    except RecursionError:
        return _unusable("is nested too deeply")
    if not isinstance(data, dict):
        return _unusable(f"holds a {type(data).__name__} and no JSON object{_beginning(content)}")
    if _is_deep(data):
        return _unusable("is nested too deeply")
    return _interpreted(data)


def write_first(path: str, data: Mapping[str, Any]) -> bool:
    """Write an error file unless there is one: the first writer wins, for it is nearest to the cause.

    The file appears at once with all its content and mode 0600; what is there already is never opened, so a
    symbolic link is not followed. An empty file in its place counts as none: it may have been made to reserve
    the name. A process killed in the middle leaves no error file, only a hidden ``.error-*.tmp``.

    Args:
        path: Where to write; the folder must exist.
        data: A JSON object in one of the two forms.

    Returns:
        Whether ours is the file now; ``False`` when somebody was first.

    Raises:
        OSError: It could not be written (no such folder, disk full).

    Example:
        >>> import tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     path = f"{folder}/error.json"
        ...     write_first(path, {"message": "cause"}), write_first(path, {"message": "consequence"})
        (True, False)
    """
    temporary = _written_beside(path, data)
    try:
        return _link_first(temporary, path)
    finally:
        _remove(temporary)


def write_over(path: str, data: Mapping[str, Any]) -> None:
    """Write an error file in place of the one that may be there.

    As `write_first`, but the last writer wins; a symbolic link in its place is itself replaced.

    Args:
        path: Where to write; the folder must exist.
        data: A JSON object in one of the two forms.

    Raises:
        OSError: It could not be written; what was there is untouched.
    """
    temporary = _written_beside(path, data)
    try:
        os.replace(temporary, path)
    finally:
        _remove(temporary)


def read_regular(path: str, limit: int, *, from_end: bool = False) -> bytes:
    """Read at most so many bytes of a regular file, without ever blocking.

    Args:
        path: The file.
        limit: Bytes at most.
        from_end: Take the last bytes and not the first.

    Returns:
        The bytes.

    Raises:
        OSError: There is no such file, it is no regular file or a symbolic link, or it cannot be read.
        ValueError: The path is no path (a NUL in it).
    """
    import errno
    import stat

    # O_NONBLOCK: opening a pipe that nobody writes to would wait for ever; looking before opening is a race.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        status = os.fstat(descriptor)
        # Before open(), which refuses the descriptor of a folder and leaves it open.
        if not stat.S_ISREG(status.st_mode):
            raise OSError(errno.EINVAL, "not a regular file")
        if from_end and status.st_size > limit:
            os.lseek(descriptor, -limit, os.SEEK_END)
        with open(descriptor, "rb", closefd=False) as file:
            return file.read(limit)
    finally:
        os.close(descriptor)


def shortened(text: str, limit: int) -> str:
    """Keep the head and the tail of a text that is too long, with a line between that says so.

    Args:
        text: Any text.
        limit: Characters to keep.

    Returns:
        The text itself when it fits.

    Example:
        >>> print(shortened("abcdefghij", 4))
        ab
        ... [6 characters left out] ...
        ij
    """
    if len(text) <= limit:
        return text
    half = limit // 2
    return f"{text[:half]}\n... [{len(text) - 2 * half} characters left out] ...\n{text[len(text) - half :]}"


def written_texts(data: Mapping[str, Any]) -> dict[str, Any]:
    """Copy the data of an error file with its message and traceback cut to `TEXT_LIMIT`.

    Args:
        data: A JSON object in one of the two forms, or any other.

    Returns:
        A copy; the given mapping is not changed.
    """
    return {key: _capped(key, value) for key, value in data.items()}


def _capped(key: str, value: object) -> object:
    if isinstance(value, str):
        return shortened(value, TEXT_LIMIT)
    if isinstance(value, Mapping) and key in {"message", "extraInfo"}:
        return written_texts(value)
    return value


def _written_beside(path: str, data: Mapping[str, Any]) -> str:
    """Write the data into a new file of the same folder and give its path; it is gone again on failure."""
    import json

    content = json.dumps(written_texts(data)).encode("ascii")
    temporary = os.path.join(os.path.dirname(path), f".error-{os.getpid()}-{os.urandom(8).hex()}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(temporary, flags, 0o600)
    try:
        # Closed before it gets its name: some file systems report a full disk only on close.
        with open(descriptor, "wb") as file:
            file.write(content)
    except BaseException:
        _remove(temporary)
        raise
    return temporary


def _link_first(temporary: str, path: str) -> bool:
    """Give a written file its name unless the name is taken."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        return _replace_empty(temporary, path)
    except OSError as error:
        if error.errno not in _no_links():
            raise
        return _claim_first(temporary, path)
    return True


def _no_links() -> set[int]:
    import errno

    return {errno.EPERM, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK}


def _claim_first(temporary: str, path: str) -> bool:
    """Do what a hard link does where there are none: one writer can create the name, and replaces it."""
    try:
        os.close(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600))
    except FileExistsError:
        return _replace_empty(temporary, path)
    os.replace(temporary, path)
    return True


def _replace_empty(temporary: str, path: str) -> bool:
    import stat

    status = os.lstat(path)
    if not stat.S_ISREG(status.st_mode) or status.st_size:
        return False
    os.replace(temporary, path)
    return True


def _remove(path: str) -> None:
    try:  # noqa: SIM105 - contextlib is one more import for each rank
        os.unlink(path)
    except OSError:
        pass  # renamed into place, or its folder is gone


def _unusable(problem: str) -> ErrorFile:
    return ErrorFile({}, "", "", None, subsecond=False, problem=problem)


def _beginning(content: bytes) -> str:
    """Show how a file that cannot be used begins: a torn one has its message there."""
    return f"; it begins with {content[:300].decode('utf-8', 'replace')!r}"


def _is_deep(data: object) -> bool:
    level = [data]
    for _ in range(DEPTH_LIMIT):
        level = [
            child
            for parent in level
            if isinstance(parent, dict | list)
            for child in (parent.values() if isinstance(parent, dict) else parent)
        ]
        if not level:
            return False
    return True


def _interpreted(data: dict[str, Any]) -> ErrorFile:
    outer = data.get("message")
    nested = outer if isinstance(outer, dict) else data
    message = nested.get("message")
    extra = nested.get("extraInfo")
    extra = extra if isinstance(extra, dict) else {}
    timestamp, subsecond = _time_of({**data, **extra})
    problem = ""
    if not isinstance(message, str):
        problem = "has no message" if message is None else f"has a message that is no text but {type(message).__name__}"
    elif not message.strip():
        problem = "has an empty message"
    return ErrorFile(
        data,
        _text(message),
        _text(extra.get("py_callstack")),
        timestamp,
        subsecond=subsecond,
        problem=problem,
    )


def _text(value: object) -> str:
    """Give a text that can be printed; JSON can hold lone surrogates, which no stream takes."""
    if not isinstance(value, str) or not value.strip():
        return ""
    return value.encode("utf-8", "backslashreplace").decode("utf-8")


def _time_of(fields: Mapping[str, Any]) -> tuple[float | None, bool]:
    """Find the time and whether it is finer than a second."""
    nanoseconds = fields.get("timestamp_ns")
    if isinstance(nanoseconds, str) and nanoseconds.isdecimal() and len(nanoseconds) <= _LONGEST_TIME:
        # Whole numbers are divided exactly; float(nanoseconds) has lost the last digits before.
        seconds = int(nanoseconds) / 1_000_000_000
        if seconds <= _LATEST_TIME:
            return seconds, True
    number = _number(fields.get("timestamp"))
    # The comparison also refuses NaN.
    if number is not None and 0 <= number <= _LATEST_TIME:
        return number, not number.is_integer()
    return None, False


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return None
    if isinstance(value, str) and len(value) > _LONGEST_TIME:
        return None
    try:
        return float(value)
    except (ValueError, OverflowError):
        return None
