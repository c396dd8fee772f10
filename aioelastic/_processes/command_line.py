"""What a rank's process is given: words, variables, program and directory, checked before it exists.

Everything here is pure except `find_command` and `check_cwd`, which look at the disk.
"""
# ruff: noqa: PTH109, PTH116, PTH117, PTH118 - these paths go to exec as text, unchanged

import errno
import os
import resource
import stat
from collections.abc import Mapping
from typing import Any, Final

from aioelastic._base.aliases import EnvValue, StrPath
from aioelastic._base.defaults import MAX_ARG_STRLEN
from aioelastic._base.paths import absolute_path
from aioelastic._base.ranks import is_rank
from aioelastic._errors.exceptions import RanksError, SpecificationError, SpecificationTypeError

# The kernel counts pages, and some arm64 and POWER machines have them of 64 KiB.
_TEXT_LIMIT: Final = max(MAX_ARG_STRLEN, 32 * resource.getpagesize())

_NO_SUCH_FILE: Final = {errno.ENOENT, errno.ENOTDIR}
"""What sends a search along PATH on to the next directory without a thought."""


def require_ranks(argument: str, mapping: object, nprocs: int, *, complete: bool) -> None:
    """Check that the keys of a per-rank map are ranks of the group.

    Args:
        argument: What the error calls the map.
        mapping: The map.
        nprocs: The number of ranks.
        complete: Whether every rank must be there.

    Raises:
        RanksError: Keys are missing, or are no rank (booleans and everything else that is no `int` included).
        SpecificationTypeError: It is no map.
    """
    if not isinstance(mapping, Mapping):
        raise SpecificationTypeError(
            f"{argument} must map ranks to values, as in {{0: ..., 1: ...}}, not be {type(mapping).__name__}"
        )
    # Not rank in mapping: True would pass for 1, and 1.0 as well.
    ranks = {key for key in mapping if is_rank(key, nprocs)}
    extra = [key for key in mapping if not is_rank(key, nprocs)]
    missing = sorted(set(range(nprocs)) - ranks) if complete else []
    if missing or extra:
        raise RanksError(argument, missing=missing, extra=extra, nprocs=nprocs)


def group_size(args: object, envs: object) -> int:
    """Give the number of ranks that two maps agree on.

    Args:
        args: The arguments of every rank.
        envs: The variables of every rank, or ``None`` for none of their own.

    Returns:
        The number n of ranks, which are 0..n-1 in both maps; 0 is a group too.

    Raises:
        RanksError: A map lacks ranks that it should have, or has keys that are no ranks. When both do, the
            error is about ``args`` and a note of it about ``envs``.
        SpecificationTypeError: One of them is no map.

    Example:
        >>> group_size({0: ("a",), 1: ("b",)}, {0: {}, 1: {}})
        2
    """
    maps = {"args": args} if envs is None else {"args": args, "envs": envs}
    # The longer one says how many: a rank forgotten in one map is likelier than one made up in the other.
    nprocs = max(len(ranks) if isinstance(ranks, Mapping) else 0 for ranks in maps.values())
    faults: list[SpecificationError] = []
    for argument, ranks in maps.items():
        try:
            require_ranks(argument, ranks, nprocs, complete=True)
        except SpecificationError as error:
            faults.append(error)
    if faults:
        for other in faults[1:]:
            faults[0].add_note(str(other))
        raise faults[0]
    return nprocs


def rank_arguments(args: object, local_rank: int) -> tuple[Any, ...]:
    """Give a rank's arguments; text is one argument and not a row of letters.

    Args:
        args: A tuple or list of anything, or a single ``str``, ``bytes`` or path.
        local_rank: The rank, for the error.

    Raises:
        SpecificationTypeError: It is of another type.

    Example:
        >>> rank_arguments("hello", 0)
        ('hello',)
    """
    if isinstance(args, str | bytes | os.PathLike):
        return (args,)
    if isinstance(args, tuple | list):
        return tuple(args)
    raise SpecificationTypeError(
        f"args of rank {local_rank} must be a tuple of arguments, or one str, not {type(args).__name__}: "
        "a single argument of another type is written (argument,)"
    )


def command_line(entrypoint: StrPath, args: object, local_rank: int) -> tuple[str, ...]:
    """Make the words of a rank's command, the program first.

    Args:
        entrypoint: The program, as text or as a path.
        args: A tuple or list of anything: text and paths are taken as they are, bytes are decoded as file
            names, and the rest is made text with ``str``. A single ``str``, ``bytes`` or path is one
            argument.
        local_rank: The rank, for the errors.

    Returns:
        The words, each of which the system can take.

    Raises:
        SpecificationTypeError: ``entrypoint`` or ``args`` is of another type.
        SpecificationError: A word has a NUL, is longer than the kernel takes, cannot be made text or cannot
            be encoded. The error says which word, never what it is.

    Example:
        >>> command_line("echo", ("step", 1, [2, 3]), 0)
        ('echo', 'step', '1', '[2, 3]')
        >>> command_line("echo", "hello world", 0)
        ('echo', 'hello world')
    """
    program = os.fspath(entrypoint) if isinstance(entrypoint, os.PathLike) else entrypoint
    if not isinstance(program, str):
        raise SpecificationTypeError(f"entrypoint must be a str or a path of text, not {type(entrypoint).__name__}")
    if not program:
        raise SpecificationError("entrypoint is empty: name a program")
    words = [_passable(str.__str__(program), "entrypoint")]
    for index, value in enumerate(rank_arguments(args, local_rank)):
        place = f"args of rank {local_rank}, index {index},"
        words.append(_passable(_argument_text(value, place), place))
    return tuple(words)


def rank_environment(
    inherited: Mapping[str, str], env: Mapping[str, EnvValue] | None, local_rank: int
) -> dict[str, str]:
    """Make the variables of a rank: what is inherited, with its own put over it.

    Args:
        inherited: The variables to start from, usually the supervisor's.
        env: The rank's own: text and paths are taken as they are, numbers are made text, and ``None`` removes
            a variable. Booleans are refused: programs disagree on whether 1 or True is meant.
        local_rank: The rank, for the errors.

    Returns:
        A new map.

    Raises:
        SpecificationTypeError: ``env`` is no map, a name is no text, or a value is of another type.
        SpecificationError: A name is empty or has ``=``; a name or value has a NUL, cannot be encoded, or
            makes the variable longer than the kernel takes. The error says which variable, never its value.

    Example:
        >>> rank_environment({"HOME": "/root", "DEBUG": "1"}, {"RANK": 3, "DEBUG": None}, 0)
        {'HOME': '/root', 'RANK': '3'}
    """
    merged = dict(inherited)
    if env is None:
        return merged
    if not isinstance(env, Mapping):
        raise SpecificationTypeError(f"envs of rank {local_rank} must be a map or None, not {type(env).__name__}")
    for key, value in env.items():
        name = _variable_name(key, local_rank)
        if value is None:
            merged.pop(name, None)
            continue
        place = f"envs of rank {local_rank}, variable {_shortened(name)},"
        text = _variable_text(value, place)
        _passable(f"{name}={text}", place)
        merged[name] = text
    return merged


def find_command(command: str, env: Mapping[str, str], cwd: str | None) -> str:
    """Find the file that would run, the way exec looks for it in the rank's own directory and variables.

    It asks, and does not hold: the file may change before it runs.

    Args:
        command: A path when it has a slash, else a name to look up along ``PATH``.
        env: The rank's variables.
        cwd: The rank's directory, or ``None`` for the supervisor's own.

    Returns:
        The absolute path.

    Raises:
        FileNotFoundError: There is no such file, or none along ``PATH``.
        PermissionError: It is a directory or another thing that does not run, or is not executable.
        NotADirectoryError: A part of the path before the last is a file.
        OSError: What else the system refuses (too many symlinks, a name too long).

    Example:
        >>> find_command("true", {"PATH": "/nowhere:/usr/bin"}, None)
        '/usr/bin/true'
    """
    if "/" in command:
        path = _absolute(command, cwd)
        _require_executable(path, command)
        return path
    refusal: OSError | None = None
    for directory in os.get_exec_path(env) if command else ():
        path = os.path.join(_absolute(directory, cwd), command)
        try:
            _require_executable(path, path)
        except OSError as error:
            # As exec does: a file that may not run does not end the search, but is what is told when nothing
            # runs.
            if refusal is None and error.errno not in _NO_SUCH_FILE:
                refusal = error
        else:
            return path
    raise refusal or FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), command)


def check_cwd(cwd: object) -> str | None:
    """Check a working directory for ranks.

    Args:
        cwd: The directory, or ``None`` for the supervisor's own.

    Returns:
        Its absolute path, so that the supervisor may change its own directory meanwhile, or ``None``.

    Raises:
        FileNotFoundError: There is none of that name; ``""`` is none.
        NotADirectoryError: It is something else.
        PermissionError: It may not be entered.
        SpecificationTypeError: It is no ``str`` and no path of text.
        SpecificationError: It has a NUL, or cannot be encoded.
    """
    if cwd is None:
        return None
    path = os.fspath(cwd) if isinstance(cwd, os.PathLike) else cwd
    if not isinstance(path, str):
        raise SpecificationTypeError(f"cwd must be a str or a path of text, not {type(cwd).__name__}")
    try:
        status = os.stat(path)
    except ValueError as error:
        raise SpecificationError("cwd has a NUL, or a character that no path can have") from error
    if not stat.S_ISDIR(status.st_mode):
        raise _os_error(errno.ENOTDIR, path)
    if not _may_execute(path):
        raise _os_error(errno.EACCES, path)
    return absolute_path(path)


def _argument_text(value: object, place: str) -> str:
    if isinstance(value, str):
        # An enum whose members are text prints their names; what subprocess passes is the text itself.
        return str.__str__(value)
    try:
        if isinstance(value, bytes | os.PathLike):
            return os.fsdecode(value)
        return str(value)
    except Exception as error:  # a __str__ may raise anything
        raise SpecificationError(
            f"{place} is of type {type(value).__name__} and cannot be made text ({type(error).__name__}): "
            "give it as text"
        ) from error


def _variable_name(key: object, local_rank: int) -> str:
    if not isinstance(key, str):
        raise SpecificationTypeError(
            f"envs of rank {local_rank}: a variable's name must be a str, not {type(key).__name__} ({_shortened(key)})"
        )
    name = str.__str__(key)
    if not name or "=" in name or "\0" in name:
        # Behind the = there would be a value, which may be a secret.
        shown = _shortened(name.partition("=")[0])
        raise SpecificationError(
            f"envs of rank {local_rank}: a variable's name must not be empty nor have '=' or a NUL: "
            f"{shown}{'=...' if '=' in name else ''}"
        )
    return name


def _variable_text(value: object, place: str) -> str:
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, bool):
        raise SpecificationTypeError(f"{place} is a bool: say what the program reads, such as '1' or 'True'")
    try:
        if isinstance(value, int):
            return int.__repr__(value)
        if isinstance(value, float):
            return float.__repr__(value)
        if isinstance(value, os.PathLike):
            return os.fsdecode(value)
    except Exception as error:  # noqa: BLE001 - __fspath__ may raise anything
        raise SpecificationError(f"{place} cannot be made text ({type(error).__name__}): give it as text") from None
    raise SpecificationTypeError(
        f"{place} must be a str, path, int or float, or None to remove it, not {type(value).__name__}"
    )


def _passable(text: str, place: str) -> str:
    """Give a text back if the kernel can take it as one word.

    Raises:
        SpecificationError: It cannot, with no word of what it is: an error ends up in logs, a password must
            not.
    """
    if "\0" in text:
        raise SpecificationError(f"{place} has a NUL, which would end it for the system: remove it")
    try:
        size = len(os.fsencode(text)) + 1
    except UnicodeEncodeError as error:
        # Not chained: that error carries the whole text.
        raise SpecificationError(
            f"{place} has a character at {error.start} that cannot be encoded ({error.encoding}): remove it"
        ) from None
    if size > _TEXT_LIMIT:
        raise SpecificationError(
            f"{place} takes {size} bytes and the system takes {_TEXT_LIMIT} at most: pass it in a file"
        )
    return text


def _absolute(path: str, cwd: str | None) -> str:
    return path if os.path.isabs(path) else os.path.join(cwd or os.getcwd(), path)


def _require_executable(path: str, named: str) -> None:
    try:
        mode = os.stat(path).st_mode
    except OSError as error:
        raise _os_error(error.errno or errno.ENOENT, named) from None
    if not stat.S_ISREG(mode) or not _may_execute(path):
        raise _os_error(errno.EACCES, named)


def _may_execute(path: str) -> bool:
    # By the effective ids, which exec goes by; access on its own goes by the real ones.
    return os.access(path, os.X_OK, effective_ids=os.access in os.supports_effective_ids)


def _os_error(number: int, path: str) -> OSError:
    """Make the built-in exception of an errno."""
    return OSError(number, os.strerror(number), path)


def _shortened(value: object, limit: int = 80) -> str:
    shown = repr(value)
    return shown if len(shown) <= limit else f"{shown[:limit]}..."
