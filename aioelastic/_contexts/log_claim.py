"""The log files that a group has claimed, until it is clear whether anybody will want to read them."""

from aioelastic._base.threads import in_thread
from aioelastic._errors.exceptions import SpecificationTypeError
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs, discard_unused
from aioelastic._processes.command_line import require_ranks

_FIELDS = ("stdouts", "stderrs", "tee_stdouts", "tee_stderrs", "error_files")


class LogClaim:
    """What ``reify`` made for one group.

    Args:
        specs: Who made it.
        dest: What was made.
    """

    def __init__(self, specs: LogsSpecs, dest: LogsDest) -> None:
        self._specs = specs
        self._dest: LogsDest | None = dest

    async def discard(self) -> None:
        """Remove what a group that did not start has left empty; once."""
        dest, self._dest = self._dest, None
        if dest is not None:
            await in_thread(discard_unused, dest)
            await self._discard_temporary(dest)

    async def tidy(self, *, logged: bool) -> None:
        """Leave no empty temporary directory behind, where no stream went to a file and no rank recorded an error."""
        dest, self._dest = self._dest, None
        if dest is not None and not logged:
            await self._discard_temporary(dest)

    async def _discard_temporary(self, dest: LogsDest) -> None:
        if isinstance(self._specs, DefaultLogsSpecs):
            await in_thread(self._specs.discard_temporary, dest)


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
