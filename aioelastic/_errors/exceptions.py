"""The exceptions of this library.

::

    AioelasticError
    ├── SpecificationError (ValueError)          bad input; nothing was started
    │   ├── SpecificationTypeError (TypeError)   ... of the wrong type
    │   └── RanksError (RuntimeError)            ... ranks missing, or ranks that do not exist
    ├── RankStartError (OSError)                 a rank could not start; nothing is left running
    │   └── also FileNotFoundError, PermissionError, ... by its errno
    ├── LogDirectoryError (OSError)              the log directory cannot be used (module ``_logs.destinations``)
    ├── DescriptorLimitError (OSError)           too few open files for the group; nothing was started
    ├── ContextStateError (RuntimeError)         a method called before start, twice, or after close; or in a rank
    │                                            that is still importing the main module
    ├── NumaBindingError (RuntimeError)          the binding asked for cannot be had (module ``_numa.errors``)
    ├── RendezvousError (RuntimeError)           a rendezvous gave no place in the world; no rank was started
    ├── SurvivorsError (RuntimeError)            processes that SIGKILL does not end forbid a restart
    └── ChildFailedError                         ranks failed (module ``child_failed``)
"""

import errno as errno_numbers
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class AioelasticError(Exception):
    """Base of all exceptions that this library raises."""


class SpecificationError(AioelasticError, ValueError):
    """An argument that cannot be used; raised before any process or file exists.

    The message says which rank, which argument and what would do. See `RanksError` for maps that name the
    wrong ranks, `SpecificationTypeError` for values of the wrong type and `RankStartError` for what the
    system refuses.
    """


class SpecificationTypeError(SpecificationError, TypeError):
    """An argument of a type that cannot be used; raised before any process or file exists."""


class RanksError(SpecificationError, RuntimeError):
    """A per-rank map that lacks ranks or names ranks that do not exist.

    It is a `RuntimeError` too, as the same mistake is in torch.

    Attributes:
        argument: The name of the argument, for instance ``"envs"``.
        missing: Ranks that the map should have and has not.
        extra: Keys of the map that are no rank of the group.
    """

    def __init__(
        self, argument: str, *, missing: Iterable[object] = (), extra: Iterable[object] = (), nprocs: int
    ) -> None:
        self.argument = argument
        self.missing: tuple[object, ...] = tuple(missing)
        self.extra: tuple[object, ...] = tuple(extra)
        self.nprocs = nprocs
        faults = [
            f"{word} {', '.join(map(repr, ranks))}"
            for word, ranks in (("missing", self.missing), ("extra", self.extra))
            if ranks
        ]
        wanted = f"the ranks are 0..{nprocs - 1}" if nprocs else "the group has no ranks"
        super().__init__(f"{argument} does not fit the group: {'; '.join(faults)} ({wanted})")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild_ranks_error, (self.argument, self.missing, self.extra, self.nprocs)


def _rebuild_ranks_error(
    argument: str, missing: tuple[object, ...], extra: tuple[object, ...], nprocs: int
) -> RanksError:
    return RanksError(argument, missing=missing, extra=extra, nprocs=nprocs)


class RankStartError(AioelasticError, OSError):
    """A rank could not be started; the ranks before it were killed and reaped, and nothing is left.

    It is also the `OSError` that `subprocess` would raise for the same errno: catch `FileNotFoundError` or
    `PermissionError` as you would there. See `SpecificationError` for input that is wrong by itself.

    Attributes:
        local_rank: The rank that could not start.
        command: Its command, as a tuple of text.
        cwd: Its working directory, or ``None`` for the supervisor's own.
        errno: The system's error number.
    """

    def __new__(  # noqa: PYI034 - it gives a subclass chosen by errno, not always cls
        cls,
        local_rank: int,  # noqa: ARG004 - __init__ takes it
        command: Iterable[str],  # noqa: ARG004 - __init__ takes it
        cwd: str | None,  # noqa: ARG004 - __init__ takes it
        error: OSError,
        doing: str = "start",  # noqa: ARG004 - __init__ takes it
    ) -> "RankStartError":
        """Choose the subclass that is also the built-in exception of this errno."""
        chosen = _START_ERRORS.get(error.errno or 0, cls) if cls is RankStartError else cls
        # Here and not in __init__: OSError.__init__ ignores its arguments where a class has its own __new__.
        return super().__new__(chosen, error.errno, error.strerror or str(error))

    def __init__(
        self, local_rank: int, command: Iterable[str], cwd: str | None, error: OSError, doing: str = "start"
    ) -> None:
        self.local_rank = local_rank
        self.command: tuple[str, ...] = tuple(command)
        self.cwd = cwd
        self.doing = doing
        self.filename = error.filename

    def __str__(self) -> str:
        number = self.errno or 0
        symbol = errno_numbers.errorcode.get(number, "unknown errno")
        about = f": {self.filename!r}" if self.filename else ""
        return (
            f"rank {self.local_rank} could not {self.doing}: [{symbol} {number}] {self.strerror}{about} "
            f"(command {_shortened(self.command)}, cwd {self.cwd or os.curdir!r}); {_remedy(number)}"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        error = OSError(self.errno, self.strerror)
        error.filename = self.filename
        return RankStartError, (self.local_rank, self.command, self.cwd, error, self.doing)


class _StartNotFoundError(RankStartError, FileNotFoundError):
    """A rank could not start: no such file."""


class _StartPermissionError(RankStartError, PermissionError):
    """A rank could not start: not allowed, or not executable."""


class _StartNotADirectoryError(RankStartError, NotADirectoryError):
    """A rank could not start: a part of a path is no directory."""


class _StartIsADirectoryError(RankStartError, IsADirectoryError):
    """A rank could not start: a directory in the place of its log file."""


class _StartFileExistsError(RankStartError, FileExistsError):
    """A rank could not start: its log file exists already."""


class _StartBlockingError(RankStartError, BlockingIOError):
    """A rank could not start: no more processes at the moment."""


_START_ERRORS: dict[int, type[RankStartError]] = {
    errno_numbers.ENOENT: _StartNotFoundError,
    errno_numbers.EACCES: _StartPermissionError,
    errno_numbers.EPERM: _StartPermissionError,
    errno_numbers.ENOTDIR: _StartNotADirectoryError,
    errno_numbers.EISDIR: _StartIsADirectoryError,
    errno_numbers.EEXIST: _StartFileExistsError,
    errno_numbers.EAGAIN: _StartBlockingError,
}

_REMEDIES = {
    errno_numbers.ENOENT: "check the path, or the rank's PATH",
    errno_numbers.EACCES: "make it an executable file, and its folders searchable",
    errno_numbers.ENOEXEC: "give the script a first line such as #!/bin/sh, or name its interpreter",
    errno_numbers.E2BIG: "pass less in arguments and environment, or raise the stack limit (ulimit -s)",
    errno_numbers.EMFILE: "raise the limit of open files (ulimit -n)",
    errno_numbers.ENFILE: "the whole system is out of open files (fs.file-max)",
    errno_numbers.EAGAIN: "raise the limit of processes (ulimit -u, or the container's pids limit)",
    errno_numbers.ENOMEM: "free memory, or allow overcommit",
    errno_numbers.EEXIST: "logs are never overwritten: choose another path",
}


def _remedy(number: int) -> str:
    return _REMEDIES.get(number, "see the errno")


def _shortened(command: tuple[str, ...], limit: int = 200) -> str:
    """Show a command, but not the megabytes an argument may have."""
    shown = repr(list(command))
    return shown if len(shown) <= limit else f"{shown[:limit]}... ({len(command)} words)"


class DescriptorLimitError(AioelasticError, OSError):
    """The limit of open files cannot hold the group; nothing was started.

    Attributes:
        needed: Descriptors the supervisor would hold at most, those open already included.
        limit: The soft limit in force (``RLIMIT_NOFILE``).
    """

    def __init__(self, needed: int, limit: int, nprocs: int) -> None:
        self.needed = needed
        self.limit = limit
        self.nprocs = nprocs
        super().__init__(
            errno_numbers.EMFILE,
            f"{nprocs} ranks need up to {needed} open files and the limit is {limit}: raise it "
            f"(ulimit -n {needed}, or resource.setrlimit), or tee fewer streams",
        )

    def __str__(self) -> str:
        return str(self.strerror)

    def __reduce__(self) -> tuple[Any, ...]:
        return DescriptorLimitError, (self.needed, self.limit, self.nprocs)


class ContextStateError(AioelasticError, RuntimeError):
    """A context was used when it could not be: before its start, for a second start, after it was closed.

    You also get it in a rank that starts functions while it is still importing the program's main module: the program
    has no ``if __name__ == "__main__":``, and each rank would start ranks of its own without end.
    """


class RendezvousError(AioelasticError, RuntimeError):
    """A rendezvous gave an agent no place in the world that its ranks could take; none of the attempt was started.

    What a rendezvous raises itself comes as it is.
    """


class SurvivorsError(AioelasticError, RuntimeError):
    """A group has failed and would be run again, but a process of it cannot be killed; nothing was restarted.

    Such a process is in uninterruptible sleep (state D): it waits for a disk, a network file system or a device, and
    may still hold ports, files and accelerators that the next attempt needs.

    Attributes:
        attempt: The number of the attempt, from 0.
        survivors: Global rank -> pids of the processes that SIGKILL did not end.
    """

    def __init__(self, attempt: int, survivors: Mapping[int, Sequence[int]]) -> None:
        self.attempt = attempt
        self.survivors: dict[int, list[int]] = {rank: list(pids) for rank, pids in survivors.items()}
        who = "; ".join(f"of rank {rank} pid {', '.join(map(str, pids))}" for rank, pids in self.survivors.items())
        super().__init__(
            f"attempt {attempt} has failed and is not repeated, since SIGKILL does not end all of its processes: {who} "
            "(uninterruptible sleep? see what they wait for in /proc/PID/stack, and free the disk or device)"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return SurvivorsError, (self.attempt, self.survivors)
