"""What becomes of the output of a group: what a user asks for, made into destinations per attempt."""
# ruff: noqa: PTH118, PTH119, PTH120 - these paths are text from end to end, as the destinations promise

import contextlib
import os
import re
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from typing import Any, Final

from aioelastic._base.aliases import StrPath
from aioelastic._base.paths import absolute_path
from aioelastic._base.ranks import is_rank
from aioelastic._errors.exceptions import RanksError, SpecificationError, SpecificationTypeError
from aioelastic._logs.destinations import (
    LogsDest,
    absolute_log_dir,
    claim_attempt,
    is_our_directory,
    make_directories,
    naming,
    refuse_file_in_place,
    remove_if_empty,
    remove_unused,
)
from aioelastic._logs.run_names import checked_run_id, fresh_run_id, is_short, shortened
from aioelastic._logs.std import Std, checked_streams, to_map

RUN_ID_VARIABLE: Final = "TORCHELASTIC_RUN_ID"
"""The variable of rank 0 that names the run, as in torch."""

ATTEMPT_VARIABLE: Final = "TORCHELASTIC_RESTART_COUNT"
"""The variable of rank 0 that numbers the attempt, as in torch."""

_STREAM_FILES: Final = {Std.OUT: "stdout.log", Std.ERR: "stderr.log"}
_FILTERED_FILES: Final = {Std.OUT: "filtered_stdout.log", Std.ERR: "filtered_stderr.log"}
_ERROR_FILE: Final = "error.json"
_ATTEMPT_NAME: Final = re.compile(r"attempt_[0-9]+")


class LogsSpecs(ABC):
    """Says which streams go to files and which to the console, and turns that into paths for each attempt.

    Subclass it to lay logs out in another way: `reify` gives the destinations of one attempt. One object may
    serve any number of groups and attempts.

    Args:
        log_dir: Where to keep logs; a relative path is taken from the working directory of this moment.
        redirects: The streams that go to files, for all ranks or by rank.
        tee: The streams that go to files and to the console, for all ranks or by rank.
        local_ranks_filter: The only ranks that may write to the console; ``None`` for all.

    Raises:
        SpecificationError: A path that no system takes, or a number that is no `Std`.
        SpecificationTypeError: An argument of a wrong type.

    Example:
        >>> from aioelastic import LogsDest, LogsSpecs, Std
        >>> class ErrorFilesOnly(LogsSpecs):
        ...     root_log_dir = "/var/log/trainer"
        ...
        ...     def reify(self, envs):
        ...         return LogsDest(error_files={rank: f"{self.root_log_dir}/{rank}.json" for rank in envs})
        >>> ErrorFilesOnly(redirects=Std.NONE).reify({0: {}}).error_files
        {0: '/var/log/trainer/0.json'}
    """

    def __init__(
        self,
        log_dir: StrPath | None = None,
        redirects: Std | Mapping[int, Std] = Std.NONE,
        tee: Std | Mapping[int, Std] = Std.NONE,
        local_ranks_filter: Iterable[int] | None = None,
    ) -> None:
        self._log_dir = None if log_dir is None else absolute_log_dir(log_dir)
        self._redirects = checked_streams(redirects, "redirects")
        self._tee = checked_streams(tee, "tee")
        self._local_ranks_filter = _checked_filter(local_ranks_filter)

    @abstractmethod
    def reify(self, envs: Mapping[int, Mapping[str, Any]]) -> LogsDest:
        """Give the destinations of one attempt.

        Args:
            envs: The variables of every rank, as its process will get them; not to be changed.

        Returns:
            Where the streams of each rank go.
        """

    @property
    @abstractmethod
    def root_log_dir(self) -> str | None:
        """The directory that everything is kept below, or ``None`` as long as there is none."""

    @property
    def log_dir(self) -> str | None:
        """The directory asked for, as an absolute path, or ``None``."""
        return self._log_dir

    @property
    def redirects(self) -> Std | dict[int, Std]:
        """The streams that go to files; a copy."""
        return self._redirects if isinstance(self._redirects, Std) else dict(self._redirects)

    @property
    def tee(self) -> Std | dict[int, Std]:
        """The streams that go to files and to the console; a copy."""
        return self._tee if isinstance(self._tee, Std) else dict(self._tee)

    @property
    def local_ranks_filter(self) -> frozenset[int] | None:
        """The only ranks that may write to the console, or ``None`` for all."""
        return self._local_ranks_filter

    def __repr__(self) -> str:
        ranks = self._local_ranks_filter
        return (
            f"{type(self).__name__}(log_dir={self._log_dir!r}, redirects={_shown(self._redirects)}, "
            f"tee={_shown(self._tee)}, local_ranks_filter={None if ranks is None else sorted(ranks)})"
        )


class DefaultLogsSpecs(LogsSpecs):
    """Keeps the logs of each attempt in a directory of their own, and never touches those of an earlier one.

    ::

        <log_dir>/<run_id>/attempt_<n>/<rank>/stdout.log   stderr.log   error.json
        <log_dir>/<run_id>/attempt_<n>/filtered_stdout.log   filtered_stderr.log

    The run is named by ``TORCHELASTIC_RUN_ID`` and the attempt numbered by ``TORCHELASTIC_RESTART_COUNT`` in
    rank 0's variables; without them it is a fresh name, and 0. When that attempt has a directory already, the
    run takes the next free sibling, ``<run_id>.2`` and so on, and keeps it for the later attempts made by the
    same object.

    Nothing is made before `reify`. Without a ``log_dir`` the first `reify` makes a temporary one that only
    its owner can enter; it is left for the user to read and remove. With ``os.devnull`` there are no files at
    all: redirected output is dropped, and teed output is only printed.

    Args:
        log_dir: Where to keep logs; made when missing.
        redirects: The streams that go to files, for all ranks or by rank.
        tee: The streams that go to files and to the console, for all ranks or by rank.
        local_ranks_filter: The only ranks that may write to the console; ``None`` for all.

    Raises:
        LogDirectoryError: ``log_dir`` is no directory (it is a `NotADirectoryError` too).
        SpecificationError: A path that no system takes, or a number that is no `Std`.
        SpecificationTypeError: An argument of a wrong type.

    Example:
        >>> import os
        >>> from aioelastic import DefaultLogsSpecs, Std
        >>> specs = DefaultLogsSpecs(tee={1: Std.OUT})
        >>> dest = specs.reify({0: {"TORCHELASTIC_RUN_ID": "job"}, 1: {}})
        >>> os.path.relpath(dest.tee_stdouts[1], specs.root_log_dir)
        'job/attempt_0/1/stdout.log'
        >>> dest.stdouts[0]
        ''
    """

    def __init__(
        self,
        log_dir: StrPath | None = None,
        redirects: Std | Mapping[int, Std] = Std.NONE,
        tee: Std | Mapping[int, Std] = Std.NONE,
        local_ranks_filter: Iterable[int] | None = None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        self._temporary: str | None = None
        self._siblings: dict[str, int] = {}
        # Groups that start at the same time do so in threads.
        self._claiming = threading.Lock()
        if self._log_dir is not None and self._log_dir != os.devnull:
            refuse_file_in_place(self._log_dir)

    @property
    def root_log_dir(self) -> str | None:
        """``log_dir``, or the temporary directory; ``None`` before the first `reify` makes that."""
        return self._log_dir or self._temporary

    def reify(self, envs: Mapping[int, Mapping[str, Any]]) -> LogsDest:
        """Make the directories and the log files of one attempt, and give their paths.

        Of the files only those are made that a rank's streams will go to: neither error files nor filtered
        copies. It does a few system calls per rank and does not wait for anything else.

        Args:
            envs: The variables of every rank 0..n-1; they are only read.

        Returns:
            Absolute paths. ``stdouts`` and ``stderrs`` name every rank, with ``""`` for the console;
            ``tee_stdouts`` and ``tee_stderrs`` only the teed ones, with the same paths.

        Raises:
            RanksError: ``envs``, or one of the maps given at the start, does not fit the ranks.
            SpecificationError: The run's name or the attempt's number cannot be part of a path.
            SpecificationTypeError: ``envs`` is no map of maps, or one of these two is of a wrong type.
            LogDirectoryError: The system refuses; nothing of what was made is left. It is also the `OSError`
                of its errno, such as `NotADirectoryError`.
        """
        nprocs = _count_ranks(envs)
        tee = to_map(self._tee, nprocs, argument="tee")
        redirects = to_map(self._redirects, nprocs, argument="redirects")
        extra = [rank for rank in sorted(self._local_ranks_filter or ()) if rank >= nprocs]
        if extra:
            raise RanksError("local_ranks_filter", extra=extra, nprocs=nprocs)
        kept = {rank: redirects[rank] | tee[rank] for rank in range(nprocs)}
        if self._log_dir == os.devnull:
            return _dropped(kept, tee)
        return _destinations(self._claim(envs.get(0, {}), kept), kept, tee)

    def discard_temporary(self, dest: LogsDest) -> None:
        """Remove what a group without logs has left empty in a temporary directory, and that directory.

        Args:
            dest: What `reify` gave for the group, which has ended.
        """
        if self._log_dir is None and self._temporary is not None:
            discard_unused(dest)
            with self._claiming:
                remove_if_empty(self._temporary)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_claiming"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _claiming=threading.Lock())

    def _claim(self, env: Mapping[str, Any], kept: Mapping[int, Std]) -> str:
        """Make an attempt's directory and remember where, so that the next attempt goes beside it."""
        run_id, attempt = _run_id(env), f"attempt_{_attempt_number(env)}"
        rank_files = {
            str(rank): [name for stream, name in _STREAM_FILES.items() if stream in streams]
            for rank, streams in kept.items()
        }
        with self._claiming, ExitStack() as undo:
            root = self._root(undo)
            path, number = claim_attempt(root, run_id, attempt, rank_files, self._siblings.get(run_id, 1))
            undo.pop_all()
            if self._log_dir is None:
                self._temporary = root
            if number > 1:
                self._siblings[run_id] = number
        return path

    def _root(self, undo: ExitStack) -> str:
        if self._log_dir is not None:
            make_directories(self._log_dir, undo)
            return self._log_dir
        # A cleaner of temporary files may have removed it, and then anybody may have made one of that name.
        if self._temporary is not None and is_our_directory(self._temporary):
            return self._temporary
        root = _temporary_directory()
        undo.callback(remove_if_empty, root)
        return root


def _temporary_directory() -> str:
    """Make a directory that only its owner can enter, where temporary files are kept."""
    place = os.environ.get("TMPDIR") or "/tmp"  # noqa: S108 - a directory of our own is made in it
    if "tempfile" not in sys.modules:
        # It takes 10 ms to import, and in nearly all programs finds no other place than this.
        path = absolute_path(os.path.join(place, f"aioelastic-{os.urandom(6).hex()}"))
        with contextlib.suppress(OSError):
            os.mkdir(path, 0o700)  # noqa: PTH102 - see _base/paths
            return path
    import tempfile  # noqa: PLC0415 - see above

    with naming(place):
        return tempfile.mkdtemp(prefix="aioelastic-")


def discard_unused(dest: LogsDest) -> None:
    """Remove the empty log files, and the directories left empty by that, of a group that failed to start.

    Only the layout of `DefaultLogsSpecs` is touched, from the log files up to the run's directory. A file
    with content stays, and so does everything above it; so do error files. What cannot be removed is left.

    Args:
        dest: What `DefaultLogsSpecs.reify` gave.
    """
    attempts: dict[str, dict[str, list[str]]] = {}
    for paths in (dest.stdouts, dest.stderrs, dest.error_files):
        for rank, path in paths.items():
            if not path:
                continue
            directory, name = os.path.split(path)
            attempt, rank_name = os.path.split(directory)
            if rank_name == str(rank) and _is_attempt(attempt):
                names = attempts.setdefault(attempt, {}).setdefault(rank_name, [])
                names.extend({name}.intersection(_STREAM_FILES.values()))
    for path in (dest.filtered_stdout, dest.filtered_stderr):
        if os.path.basename(path) in _FILTERED_FILES.values() and _is_attempt(os.path.dirname(path)):
            attempts.setdefault(os.path.dirname(path), {})
    for attempt, rank_files in attempts.items():
        remove_unused(attempt, rank_files, tuple(_FILTERED_FILES.values()))


def _destinations(attempt: str, kept: Mapping[int, Std], tee: Mapping[int, Std]) -> LogsDest:
    """Name the files of an attempt's directory."""

    def paths(stream: Std) -> dict[int, str]:
        name = _STREAM_FILES[stream]
        return {rank: os.path.join(attempt, str(rank), name) if stream in kept[rank] else "" for rank in kept}

    stdouts, stderrs = paths(Std.OUT), paths(Std.ERR)
    return LogsDest(
        stdouts,
        stderrs,
        {rank: stdouts[rank] for rank in tee if Std.OUT in tee[rank]},
        {rank: stderrs[rank] for rank in tee if Std.ERR in tee[rank]},
        {rank: os.path.join(attempt, str(rank), _ERROR_FILE) for rank in kept},
        os.path.join(attempt, _FILTERED_FILES[Std.OUT]),
        os.path.join(attempt, _FILTERED_FILES[Std.ERR]),
    )


def _dropped(kept: Mapping[int, Std], tee: Mapping[int, Std]) -> LogsDest:
    """Send what would go to files nowhere."""
    return LogsDest(
        {rank: os.devnull if Std.OUT in kept[rank] else "" for rank in kept},
        {rank: os.devnull if Std.ERR in kept[rank] else "" for rank in kept},
        {rank: os.devnull for rank in tee if Std.OUT in tee[rank]},
        {rank: os.devnull for rank in tee if Std.ERR in tee[rank]},
        dict.fromkeys(kept, ""),
    )


def _count_ranks(envs: object) -> int:
    if not isinstance(envs, Mapping):
        raise SpecificationTypeError(f"envs must map each rank to its variables, not be {type(envs).__name__}")
    nprocs = len(envs)
    extra = [rank for rank in envs if not is_rank(rank, nprocs)]
    if extra:
        # Not rank in envs: True would pass for 1.
        ranks = {rank for rank in envs if is_rank(rank, nprocs)}
        raise RanksError("envs", missing=sorted(set(range(nprocs)) - ranks), extra=extra, nprocs=nprocs)
    for rank, env in envs.items():
        if not isinstance(env, Mapping):
            raise SpecificationTypeError(f"envs[{rank}] must map names to values, not be {type(env).__name__}")
    return nprocs


def _run_id(env: Mapping[str, Any]) -> str:
    value = env.get(RUN_ID_VARIABLE)
    if value is None:
        return fresh_run_id()
    return checked_run_id(f"{RUN_ID_VARIABLE} of rank 0", _text(value, RUN_ID_VARIABLE))


def _attempt_number(env: Mapping[str, Any]) -> str:
    value = env.get(ATTEMPT_VARIABLE)
    if value is None:
        return "0"
    number = _text(value, ATTEMPT_VARIABLE)
    if not re.fullmatch(r"[0-9]+", number) or not is_short(number):
        raise SpecificationError(
            f"{ATTEMPT_VARIABLE} of rank 0 counts attempts from 0, and {shortened(number)} is no such number"
        )
    return str(int(number))


def _text(value: object, variable: str) -> str:
    if isinstance(value, bool) or not isinstance(value, str | int):
        raise SpecificationTypeError(f"{variable} of rank 0 must be a str or an int, not {type(value).__name__}")
    if isinstance(value, str):
        return value
    try:
        return int.__repr__(value)
    except ValueError as error:  # Python refuses to write numbers of more than 4300 digits
        raise SpecificationError(f"{variable} of rank 0 is too large a number") from error


def _is_attempt(directory: str) -> bool:
    return _ATTEMPT_NAME.fullmatch(os.path.basename(directory)) is not None


def _checked_filter(ranks: object) -> frozenset[int] | None:
    if ranks is None:
        return None
    if isinstance(ranks, str | bytes) or not isinstance(ranks, Iterable):
        raise SpecificationTypeError(f"local_ranks_filter must be a set of ranks, not {type(ranks).__name__}")
    checked = list(ranks)
    wrong = [rank for rank in checked if isinstance(rank, bool) or not isinstance(rank, int)]
    if wrong:
        raise SpecificationTypeError(f"local_ranks_filter must hold ints, not {wrong[0]!r}")
    if any(rank < 0 for rank in checked):
        raise SpecificationError("local_ranks_filter must hold ranks, which count from 0")
    return frozenset(checked)


def _shown(streams: Std | Mapping[int, Std]) -> str:
    if isinstance(streams, Std):
        return f"Std.{streams.name}"
    return "{" + ", ".join(f"{rank}: Std.{value.name}" for rank, value in streams.items()) + "}"
