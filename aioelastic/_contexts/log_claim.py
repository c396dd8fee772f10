"""The log files that a group has claimed, until it is clear whether anybody will want to read them."""

import threading
from functools import partial

from aioelastic._base.threads import in_thread
from aioelastic._errors.exceptions import SpecificationTypeError
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs, discard_unused
from aioelastic._processes.command_line import require_ranks

_FIELDS = ("stdouts", "stderrs", "tee_stdouts", "tee_stderrs", "error_files")


class LogClaim:
    """What ``reify`` makes for one group, in a thread that may still be at it when the group is given up.

    Args:
        specs: Who makes it.
    """

    def __init__(self, specs: LogsSpecs) -> None:
        self._specs = specs
        self._lock = threading.Lock()
        self._dest: object = None
        self._is_given_up = False

    def note(self, dest: object) -> None:
        """Note what was made (blocking); for a group that was given up meanwhile it is removed at once."""
        with self._lock:
            self._dest = dest
            is_given_up = self._is_given_up
        if is_given_up:
            self._remove(unused=True)

    async def discard(self) -> None:
        """Remove what a group that did not start has left empty, now or as soon as it is made."""
        with self._lock:
            self._is_given_up = True
            is_made = self._dest is not None
        if is_made:
            await in_thread(partial(self._remove, unused=True))

    async def tidy(self, *, logged: bool) -> None:
        """Leave no empty temporary directory behind, where no stream went to a file and no rank recorded an error."""
        if logged:
            self._dest = None
        elif self._dest is not None:
            await in_thread(partial(self._remove, unused=False))

    def _remove(self, *, unused: bool) -> None:
        with self._lock:
            dest, self._dest = self._dest, None
        if isinstance(dest, LogsDest):
            if unused:
                discard_unused(dest)
            if isinstance(self._specs, DefaultLogsSpecs):
                self._specs.discard_temporary(dest)


def check_destinations(dest: object, nprocs: int) -> None:
    """Check what ``reify``, anybody's code, has made.

    Raises:
        SpecificationTypeError: It is no `LogsDest`.
        RanksError: It names ranks that are not there.
    """
    if not isinstance(dest, LogsDest):
        raise SpecificationTypeError(f"logs_specs.reify() must give a LogsDest, not {type(dest).__name__}")
    for field in _FIELDS:
        require_ranks(f"{field} of logs_specs.reify()", getattr(dest, field), nprocs, complete=False)
