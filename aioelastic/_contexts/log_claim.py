"""The log files that a group has claimed, until it is clear whether anybody will want to read them."""

import contextlib
import itertools
import os
import stat
import threading
from functools import partial

from aioelastic._base.threads import in_thread
from aioelastic._errors.exceptions import SpecificationTypeError
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.files import checked_log_path
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs, discard_unused
from aioelastic._processes.command_line import require_ranks

_MAPS = ("stdouts", "stderrs", "tee_stdouts", "tee_stderrs", "error_files")
_COPIES = ("filtered_stdout", "filtered_stderr")


class LogClaim:
    """What ``reify`` makes for one group, in a thread that may still be at it when the group is given up.

    Args:
        specs: Who makes it.
    """

    def __init__(self, specs: LogsSpecs) -> None:
        self._specs = specs
        self._lock = threading.Lock()
        self._dest: LogsDest | None = None
        self._is_held = False
        self._is_given_up = False

    def note(self, dest: LogsDest) -> bool:
        """Note what was made (blocking); for a group that was given up meanwhile it is removed at once.

        Returns:
            Whether it is still wanted.
        """
        with self._lock:
            self._dest = dest
        return self._keep()

    def hold(self) -> None:
        """Have nothing removed until `release`: a thread makes files there."""
        self._is_held = True

    def release(self) -> None:
        """Let go of what was held (blocking); for a group that was given up meanwhile it is removed at once."""
        with self._lock:
            self._is_held = False
        self._keep()

    async def discard(self) -> None:
        """Remove what a group that did not start has left empty, now or as soon as it is made."""
        with self._lock:
            self._is_given_up = True
            is_ours = self._dest is not None and not self._is_held
        if is_ours:
            await in_thread(partial(self._remove, unused=True))

    async def tidy(self, *, logged: bool) -> None:
        """Leave no empty temporary directory behind, where no stream went to a file and no rank recorded an error."""
        if logged:
            self._dest = None
        elif self._dest is not None:
            await in_thread(partial(self._remove, unused=False))

    def _keep(self) -> bool:
        """Keep what was made, unless the group was given up meanwhile; tell which."""
        with self._lock:
            is_given_up = self._is_given_up
        if is_given_up:
            self._remove(unused=True)
        return not is_given_up

    def _remove(self, *, unused: bool) -> None:
        with self._lock:
            dest, self._dest = self._dest, None
        if dest is not None:
            if unused:
                discard_unused(dest)
            if isinstance(self._specs, DefaultLogsSpecs):
                self._specs.discard_temporary(dest)


def checked_destinations(dest: object, nprocs: int) -> LogsDest:
    """Give what ``reify``, anybody's code, has made, with absolute paths.

    Raises:
        SpecificationTypeError: It is no `LogsDest`, or has something else than paths in it.
        SpecificationError: A path that no system takes.
        RanksError: It names ranks that are not there.
    """
    if not isinstance(dest, LogsDest):
        raise SpecificationTypeError(f"logs_specs.reify() must give a LogsDest, not {type(dest).__name__}")
    maps: dict[str, dict[int, str]] = {}
    for field in _MAPS:
        paths = getattr(dest, field)
        require_ranks(f"{field} of logs_specs.reify()", paths, nprocs, complete=False)
        maps[field] = {
            rank: checked_log_path(f"{field}[{rank}] of logs_specs.reify()", path) for rank, path in paths.items()
        }
    copies = {field: checked_log_path(f"{field} of logs_specs.reify()", getattr(dest, field)) for field in _COPIES}
    return LogsDest(**maps, filtered_stdout=copies["filtered_stdout"], filtered_stderr=copies["filtered_stderr"])


def set_aside_earlier_errors(dest: LogsDest) -> None:
    """Rename the error files of an earlier attempt, if a specification gives the same paths again (blocking).

    A rank leaves alone what is there, as the first record of an attempt is the one that counts; so it would be taken
    for the cause of this attempt's failure. Its new name is the next free one of ``<path>.1``, ``<path>.2``, ...

    Raises:
        OSError: One cannot be renamed.
    """
    for path in filter(None, dest.error_files.values()):
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):
            if stat.S_ISREG(os.lstat(path).st_mode):
                names = (f"{path}.{number}" for number in itertools.count(1))
                os.rename(path, next(name for name in names if not os.path.lexists(name)))  # noqa: PTH104
