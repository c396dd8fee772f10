"""The paths that logs go to, and the claim on the directories that hold them."""
# ruff: noqa: PTH102, PTH106, PTH112, PTH118, PTH120 - pathlib has no dir_fd, and these paths are text from end to end

import errno
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from aioelastic._base.paths import absolute_path
from aioelastic._errors.exceptions import AioelasticError, SpecificationError, SpecificationTypeError

_DIRECTORY_FLAGS: Final = os.O_RDONLY | os.O_DIRECTORY
_NEW_FILE_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
_NEW_FILE_MODE: Final = 0o644
"""As a shell's redirection makes them, before the umask, but never writable for others."""


@dataclass(frozen=True, slots=True)
class LogsDest:
    """Where the streams of every rank go: the result of `LogsSpecs.reify`.

    A path of ``""``, or a rank that a map lacks, means the console.

    Example:
        >>> from aioelastic import LogsDest
        >>> LogsDest(stdouts={0: "/tmp/0/stdout.log"}).tee_stdouts
        {}
    """

    stdouts: dict[int, str] = field(default_factory=dict)
    """The file of each rank's standard output."""

    stderrs: dict[int, str] = field(default_factory=dict)
    """The file of each rank's standard error."""

    tee_stdouts: dict[int, str] = field(default_factory=dict)
    """The same file again where standard output goes to the console as well."""

    tee_stderrs: dict[int, str] = field(default_factory=dict)
    """The same file again where standard error goes to the console as well."""

    error_files: dict[int, str] = field(default_factory=dict)
    """Where each rank records the exception it died of; a file from before the attempt is renamed to
    ``<path>.1``, or the next number that is free."""

    filtered_stdout: str = ""
    """The file of the lines of all teed standard outputs that a filter lets through."""

    filtered_stderr: str = ""
    """The file of the lines of all teed standard errors that a filter lets through."""


class LogDirectoryError(AioelasticError, OSError):
    """The directories or files of the logs could not be made; what was made of them is gone again.

    It is also the `OSError` of its errno: `NotADirectoryError` for a file in the place of ``log_dir``,
    `PermissionError` and so on. See `SpecificationError` for a ``log_dir`` that is wrong by itself.

    Attributes:
        filename: The path that the system refused.
        errno: The system's error number.
    """

    # All of it is done here: OSError.__init__ does nothing in a class that has a __new__ of its own.
    def __new__(cls, error: OSError, path: str) -> "LogDirectoryError":  # noqa: PYI034 - often a subclass
        """Choose the subclass that is also the built-in exception of this errno."""
        chosen = _DIRECTORY_ERRORS.get(error.errno or 0, cls) if cls is LogDirectoryError else cls
        made = super().__new__(chosen, error.errno, error.strerror or str(error))
        made.filename = path
        return made

    def __str__(self) -> str:
        symbol = errno.errorcode.get(self.errno or 0, "unknown errno")
        return (
            f"logs cannot be kept at {self.filename!r}: [{symbol} {self.errno}] {self.strerror}; "
            "give a log_dir that is, or can become, a directory that you may write to"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return LogDirectoryError, (OSError(self.errno, self.strerror), self.filename)


class _LogNotADirectoryError(LogDirectoryError, NotADirectoryError):
    """No place for logs: a part of the path is no directory."""


class _LogPermissionError(LogDirectoryError, PermissionError):
    """No place for logs: not allowed."""


class _LogNotFoundError(LogDirectoryError, FileNotFoundError):
    """No place for logs: a directory went away meanwhile."""


class _LogExistsError(LogDirectoryError, FileExistsError):
    """No place for logs: something put a file there meanwhile."""


_DIRECTORY_ERRORS: Final[dict[int, type[LogDirectoryError]]] = {
    errno.ENOTDIR: _LogNotADirectoryError,
    errno.EACCES: _LogPermissionError,
    errno.EPERM: _LogPermissionError,
    errno.ENOENT: _LogNotFoundError,
    errno.EEXIST: _LogExistsError,
}

_TAKEN: Final = {errno.EEXIST, errno.ENOTDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.ENOENT}
"""How the system says that a run directory is not for us.

A used attempt; a file, a symlink, or somebody else's private directory in the place; removed between two
calls.
"""


def absolute_log_dir(log_dir: object) -> str:
    """Check a directory's name and make it absolute, so that a later change of directory changes nothing.

    Raises:
        SpecificationTypeError: It is no text and no path of text.
        SpecificationError: It is empty, has a NUL or cannot be encoded.
        LogDirectoryError: It is relative and the working directory is gone.
    """
    path = os.fspath(log_dir) if isinstance(log_dir, os.PathLike) else log_dir
    if not isinstance(path, str):
        raise SpecificationTypeError(f"log_dir must be a str or a path of text, not {type(log_dir).__name__}")
    if not path or "\0" in path:
        raise SpecificationError(f"log_dir {path!r} is no path; leave it out for a temporary directory")
    try:
        os.fsencode(path)
    except UnicodeEncodeError as error:
        raise SpecificationError(f"log_dir {path!r} cannot be written in the file system's encoding") from error
    with naming(path):
        return absolute_path(path)


def is_our_directory(path: str) -> bool:
    """Tell whether a path is a directory, no symlink to one, that belongs to the user we act as."""
    try:
        status = os.lstat(path)
    except OSError:
        return False
    return stat.S_ISDIR(status.st_mode) and status.st_uid == os.geteuid()


def refuse_file_in_place(path: str) -> None:
    """Look whether a path is a directory or can become one, without making anything.

    Raises:
        LogDirectoryError: It, or something on the way to it, is no directory. It is a `NotADirectoryError`
            too.
    """
    place = path
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        raise LogDirectoryError(_not_a_directory(), place)


def make_directories(path: str, undo: ExitStack) -> None:
    """Make a directory and what is missing above it; ``undo`` learns how to remove what was made.

    Raises:
        LogDirectoryError: The system refuses, or something on the way is no directory.
    """
    missing = []
    while not os.path.isdir(path):
        missing.append(path)
        path = os.path.dirname(path)
    for directory in reversed(missing):
        with naming(directory):
            try:
                os.mkdir(directory)
            except FileExistsError:  # made by another program meanwhile, or a file or dangling symlink
                if not os.path.isdir(directory):
                    raise _not_a_directory() from None
                continue
        undo.callback(remove_if_empty, directory)


def claim_attempt(
    root: str, run_id: str, attempt: str, rank_files: Mapping[str, Sequence[str]], first: int = 1
) -> tuple[str, int]:
    """Make an attempt's directory, with its ranks' directories and log files, where nothing was before.

    The directory is made by one ``mkdir``, so that of two programs only one gets it; the other goes on to the
    next sibling of the run's directory. Everything is reached through descriptors and without following
    symlinks, so that nothing planted below ``root`` leads a file elsewhere.

    Args:
        root: An existing directory.
        run_id: The name of the run, and of its directory unless that is taken.
        attempt: The name of the attempt's directory.
        rank_files: The names of the files to make for each rank's directory.
        first: The number of the sibling to try first; 1 is the run's directory itself.

    Returns:
        The path of the attempt's directory, and the number of the sibling it is in.

    Raises:
        LogDirectoryError: The system refuses; all that this call made is removed.
    """
    # Leaving them, the inner stack takes things back while the outer one still holds the descriptors for it.
    with ExitStack() as held, ExitStack() as undo:
        base = held.enter_context(_open(root, follow=True))
        number = first
        while (place := _claim_within(base, _sibling(run_id, number), attempt, held, undo)) is None:
            number += 1
        for rank, names in rank_files.items():
            _make_rank(place, rank, names, undo)
        undo.pop_all()
        return place.path, number


def remove_unused(attempt: str, rank_files: Mapping[str, Sequence[str]], own_files: Sequence[str]) -> None:
    """Remove an attempt's empty log files, then its directories and its run's where they hold nothing else.

    Args:
        attempt: The path of the attempt's directory.
        rank_files: The names of the files of each rank's directory that may go.
        own_files: The names of the files of the attempt's directory itself that may go.
    """
    with suppress(OSError), _open(attempt) as place:
        for rank, names in rank_files.items():
            if names:
                with suppress(OSError), place.open(rank) as directory:
                    for name in names:
                        directory.remove_empty_file(name)
            remove_if_empty(rank, place.descriptor)
        for name in own_files:
            place.remove_empty_file(name)
    with suppress(OSError):
        os.rmdir(attempt)
        os.rmdir(os.path.dirname(attempt))


def remove_if_empty(path: str, parent: int | None = None) -> None:
    """Remove a directory if it is empty; one that is not, or is gone, is none of our business."""
    with suppress(OSError):
        os.rmdir(path, dir_fd=parent)


@contextmanager
def naming(path: str) -> Iterator[None]:
    """Turn an `OSError` into ours, with the whole path: beside a descriptor the system names only its end."""
    try:
        yield
    except OSError as error:
        raise LogDirectoryError(error, path) from error


class _Directory(NamedTuple):
    """A directory held by a descriptor, which stays the same whatever is moved or planted at its path."""

    path: str
    descriptor: int

    def join(self, name: str) -> str:
        return os.path.join(self.path, name)

    def make(self, name: str) -> None:
        with naming(self.join(name)):
            os.mkdir(name, dir_fd=self.descriptor)

    def open(self, name: str) -> AbstractContextManager["_Directory"]:
        return _open(self.join(name), name, self.descriptor)

    def make_file(self, name: str) -> None:
        with naming(self.join(name)):
            os.close(os.open(name, _NEW_FILE_FLAGS, _NEW_FILE_MODE, dir_fd=self.descriptor))

    def remove_empty_file(self, name: str) -> None:
        with suppress(OSError):
            status = os.stat(name, dir_fd=self.descriptor, follow_symlinks=False)
            if stat.S_ISREG(status.st_mode) and status.st_size == 0:
                os.unlink(name, dir_fd=self.descriptor)


@contextmanager
def _open(
    path: str, name: str | None = None, parent: int | None = None, *, follow: bool = False
) -> Iterator[_Directory]:
    flags = _DIRECTORY_FLAGS if follow else _DIRECTORY_FLAGS | os.O_NOFOLLOW
    with naming(path):
        descriptor = os.open(path if name is None else name, flags, dir_fd=parent)
    try:
        yield _Directory(path, descriptor)
    finally:
        os.close(descriptor)


def _sibling(run_id: str, number: int) -> str:
    return run_id if number == 1 else f"{run_id}.{number}"


def _claim_within(base: _Directory, run: str, attempt: str, held: ExitStack, undo: ExitStack) -> _Directory | None:
    """Make the attempt's directory in one run directory, or find that one taken."""
    made = True
    try:
        base.make(run)
    except FileExistsError:
        made = False
    else:
        undo.callback(remove_if_empty, run, base.descriptor)
    try:
        with base.open(run) as directory:
            directory.make(attempt)
            undo.callback(remove_if_empty, os.path.join(run, attempt), base.descriptor)
            return held.enter_context(directory.open(attempt))
    except LogDirectoryError as error:
        # In a directory of our own making a refusal is no sign of another run: there would be no end of
        # siblings.
        if error.errno not in _TAKEN or (made and isinstance(error, PermissionError)):
            raise
        return None


def _make_rank(place: _Directory, rank: str, names: Sequence[str], undo: ExitStack) -> None:
    place.make(rank)
    undo.callback(remove_if_empty, rank, place.descriptor)
    if not names:
        return
    with place.open(rank) as directory:
        for name in names:
            directory.make_file(name)
            # By way of the rank's directory once more: this many descriptors could not all stay open.
            undo.callback(_remove_file, place, rank, name)


def _remove_file(place: _Directory, rank: str, name: str) -> None:
    with suppress(OSError), place.open(rank) as directory:
        os.unlink(name, dir_fd=directory.descriptor)


def _not_a_directory() -> NotADirectoryError:
    return NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
