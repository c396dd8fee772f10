"""The exception that says which ranks failed and why."""

import copyreg
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from aioelastic._errors.exceptions import AioelasticError, SpecificationError
from aioelastic._errors.process_failure import ProcessFailure
from aioelastic._errors.report import describe_failures, root_cause_first


class ChildFailedError(AioelasticError):
    """Ranks of a group failed; its text is a report for a person.

    You get it from a result's ``raise_for_failures()`` when ranks failed by themselves; ranks that were
    stopped because of them are only listed. See `RankStartError` for a rank that never ran. A function
    decorated with `record` hands the root cause's error file on to its own supervisor when this passes
    through it.

    The failures are put in order of time, and those of the same time stay in the order given: a supervisor
    gives them as it saw the ranks end. It travels by ``pickle``, failures, host and notes included.

    Attributes:
        name: The group's name.
        failures: Rank to failure, the root cause first.
        stopped: The ranks that were stopped because of them, in ascending order.
        host: The machine the group ran on.

    Args:
        name: The group's name.
        failures: Rank to failure; at least one.
        stopped: Ranks that were stopped because of them.
        history: What led to it, a line for each attempt of a group that was run again.

    Raises:
        SpecificationError: There are no failures.

    Example:
        >>> failure = ProcessFailure(local_rank=1, pid=123, exitcode=-9, error_file="")
        >>> error = ChildFailedError("trainer", {1: failure}, stopped=[0])
        >>> error.get_first_failure()[0]
        1
    """

    def __init__(
        self,
        name: str,
        failures: Mapping[int, ProcessFailure],
        *,
        stopped: Iterable[int] = (),
        history: Sequence[str] = (),
    ) -> None:
        if not failures:
            raise SpecificationError(
                f"ChildFailedError for {name!r} needs at least one failure, and the failures given are empty"
            )
        self.name = name
        self.failures: dict[int, ProcessFailure] = root_cause_first(failures)
        self.stopped: tuple[int, ...] = tuple(sorted(set(stopped)))
        self.host: str = os.uname().nodename
        super().__init__(describe_failures(name, self.host, self.failures, self.stopped, history))

    def get_first_failure(self) -> tuple[int, ProcessFailure]:
        """Give the root cause: the failure that came first.

        Returns:
            The rank and its failure.
        """
        return next(iter(self.failures.items()))

    def __reduce__(self) -> tuple[Any, ...]:
        # Past __init__: the report names the host and the time of the place where it was written.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]
