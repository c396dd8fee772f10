"""The result of a group."""

from dataclasses import dataclass, field
from typing import Any

from aioelastic._errors.child_failed import ChildFailedError
from aioelastic._errors.process_failure import ProcessFailure
from aioelastic._supervision.exits import RankExit, stopped_ranks


@dataclass(frozen=True, slots=True)
class RunProcsResult:
    """How a group of ranks ended; given by `PContext.wait`.

    Attributes:
        return_values: Rank -> what its function returned; empty for commands.
        failures: Rank -> its failure, the root cause first. Ranks that were merely stopped are not in it.
        stdouts: Rank -> path of its stdout log, ``""`` when that went to the console.
        stderrs: Rank -> path of its stderr log, ``""`` when that went to the console.
        exits: Rank -> how it ended, in the order of the exits.
        survivors: Rank -> pids of processes that even SIGKILL did not end; empty in all normal cases.
        name: The group's name.
    """

    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    exits: dict[int, RankExit] = field(default_factory=dict, kw_only=True)
    survivors: dict[int, list[int]] = field(default_factory=dict, kw_only=True)
    name: str = field(default="", kw_only=True)

    def is_failed(self) -> bool:
        """Tell whether any rank failed; a group that was closed before its end has not."""
        return bool(self.failures)

    def root_failure(self) -> ProcessFailure | None:
        """Give the failure that came first, or ``None``."""
        return next(iter(self.failures.values()), None)

    def raise_for_failures(self) -> None:
        """Do nothing if no rank failed.

        Raises:
            ChildFailedError: Ranks failed; it has all the failures, and a message for a person.
        """
        if self.failures:
            stopped = stopped_ranks(self.exits, self.failures)
            raise ChildFailedError(self.name, self.failures, stopped=stopped)
