"""How a run ended: `RunResult`, with all its attempts."""

import time
from dataclasses import dataclass, field
from typing import Any

from aioelastic._agent.rendezvous import WorldInfo
from aioelastic._base.durations import precise
from aioelastic._contexts.results import RunProcsResult
from aioelastic._errors.child_failed import ChildFailedError
from aioelastic._errors.process_failure import ProcessFailure
from aioelastic._supervision.exits import RankExit, stopped_ranks
from aioelastic._supervision.states import GroupState


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """How one attempt of a run ended.

    Attributes:
        number: From 0; ``TORCHELASTIC_RESTART_COUNT`` of its ranks.
        state: ``SUCCEEDED``, ``FAILED`` or ``STOPPED``.
        world: The node's place in the world during the attempt.
        exits: Global rank -> how it ended, in the order of the exits.
        failures: Global rank -> its failure, the root cause first.
        stdouts: Global rank -> path of its stdout log, ``""`` when that went to the console.
        stderrs: Global rank -> path of its stderr log, ``""`` when that went to the console.
        survivors: Global rank -> pids of processes that even SIGKILL did not end; empty in all normal cases.
        log_dir: The directory of the attempt's logs, ``""`` when it has none.
        start_time: When it began (seconds since the epoch).
        end_time: When its last process was gone (seconds since the epoch).
        duration: Seconds from its begin to its end, whatever was made of the wall's clock meanwhile.
        delay: Seconds that were waited before it.
    """

    number: int
    state: GroupState
    world: WorldInfo
    exits: dict[int, RankExit] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    stdouts: dict[int, str] = field(default_factory=dict)
    stderrs: dict[int, str] = field(default_factory=dict)
    survivors: dict[int, list[int]] = field(default_factory=dict)
    log_dir: str = ""
    start_time: float = 0.0
    end_time: float = 0.0
    duration: float = 0.0
    delay: float = 0.0

    @classmethod
    def of_group(
        cls,
        found: RunProcsResult,
        *,
        number: int,
        state: GroupState,
        world: WorldInfo,
        log_dir: str,
        start_time: float,
        duration: float,
        delay: float,
    ) -> "Attempt":
        """Record an attempt that has ended just now, with global ranks in place of the group's local ones."""
        return cls(
            number=number,
            state=state,
            world=world,
            exits=world.by_global_rank(found.exits),
            failures=world.by_global_rank(found.failures),
            stdouts=world.by_global_rank(found.stdouts),
            stderrs=world.by_global_rank(found.stderrs),
            survivors=world.by_global_rank(found.survivors),
            log_dir=log_dir,
            start_time=start_time,
            end_time=time.time(),
            duration=duration,
            delay=delay,
        )


@dataclass(frozen=True, slots=True)
class RunResult:
    """How a run ended; given by `LocalElasticAgent.run`.

    Attributes:
        state: ``SUCCEEDED``; ``FAILED``, with no restart left; or ``STOPPED``, which would have gone on.
        return_values: Global rank -> what its function returned in the last attempt; empty for commands.
        failures: Global rank -> its failure in the last attempt, the root cause first. A run that was stopped before
            the next attempt has some, too.
        attempts: All attempts, the first one first.
        name: The role of the ranks.
        log_dir: The directory of the run's logs, with ``events.jsonl``; ``""`` when it has none.
        start_time: When it began (seconds since the epoch).
        end_time: When it ended (seconds since the epoch).
        duration: Seconds from its begin to its end, whatever was made of the wall's clock meanwhile.
    """

    state: GroupState
    return_values: dict[int, Any] = field(default_factory=dict)
    failures: dict[int, ProcessFailure] = field(default_factory=dict)
    attempts: tuple[Attempt, ...] = field(default=(), kw_only=True)
    name: str = field(default="", kw_only=True)
    log_dir: str = field(default="", kw_only=True)
    start_time: float = field(default=0.0, kw_only=True)
    end_time: float = field(default=0.0, kw_only=True)
    duration: float = field(default=0.0, kw_only=True)

    def is_failed(self) -> bool:
        """Tell whether the run failed; one that was stopped has not."""
        return self.state is GroupState.FAILED and bool(self.failures)

    def root_failure(self) -> ProcessFailure | None:
        """Give the last attempt's first failure, or ``None``."""
        return next(iter(self.failures.values()), None)

    def raise_for_failures(self) -> None:
        """Do nothing if the run has succeeded or was stopped.

        Raises:
            ChildFailedError: The last attempt failed; its text also lists the attempts before.
        """
        if self.is_failed():
            raise last_failure(self)


def last_failure(result: RunResult) -> ChildFailedError:
    """Make the error that tells of the last attempt's failures, and of the attempts before.

    Raises:
        SpecificationError: The last attempt has none.
    """
    exits = result.attempts[-1].exits if result.attempts else {}
    return ChildFailedError(
        result.name,
        result.failures,
        stopped=stopped_ranks(exits, result.failures),
        history=[describe_attempt(each) for each in result.attempts],
    )


def describe_attempt(attempt: Attempt) -> str:
    """Say in one line how an attempt ended.

    Returns:
        Such as ``attempt 1, after 0.02 s of waiting: rank 3 failed (SIGKILL) after 12.0 s``.
    """
    waited = f", after {precise(attempt.delay)} of waiting" if attempt.delay else ""
    how = attempt.state.value
    if attempt.failures:
        rank, failure = next(iter(attempt.failures.items()))
        signalled = failure.exitcode is not None and failure.exitcode < 0
        code = failure.signal_name() if signalled else f"exit code {failure.exitcode}"
        more = f" and {len(attempt.failures) - 1} more" if len(attempt.failures) > 1 else ""
        how = f"rank {rank}{more} failed ({code})"
    return f"attempt {attempt.number}{waited}: {how} after {precise(attempt.duration)}"
