"""What a person is told when a run is over, and what the shell is (pure)."""

from collections.abc import Iterator, Sequence
from typing import Final

from aioelastic._agent.run_result import RunResult, describe_attempt, last_failure
from aioelastic._base.durations import spoken
from aioelastic._cli.colours import BOLD, GREEN, RED, YELLOW, painted
from aioelastic._errors.log_tail import printable
from aioelastic._supervision.states import GroupState

_COLOURS: Final = {GroupState.SUCCEEDED: GREEN, GroupState.FAILED: RED, GroupState.STOPPED: YELLOW}

_BY_SIGNAL: Final = 128
"""What a shell adds to the number of the signal that ended a program."""


def is_worth_telling(result: RunResult, *, terminal: bool) -> bool:
    """Tell whether to print the summary: a person gets it always, a pipe unless all went well."""
    return terminal or result.state is not GroupState.SUCCEEDED


def summary(result: RunResult, *, colour: bool = False) -> str:
    """Write how a run ended.

    Args:
        result: The run's result.
        colour: Whether to use colours.

    Returns:
        The root cause with its traceback if the last attempt failed, all attempts if there were several, how long it
        took, where the logs are: several lines, the last one without an end.
    """
    parts = [*_report(result, colour=colour), *_end(result, colour=colour)]
    return "\n".join(parts)


def exit_status(result: RunResult, received: Sequence[int] = ()) -> int:
    """Give the status that the command line ends with.

    Args:
        result: The run's result.
        received: The signals that the launcher was sent, in order.

    Returns:
        0 if it succeeded; 128 and the signal's number if it was stopped by a signal to the launcher, or if the root
        cause died of one; else the root cause's exit code, or 1 where that says nothing.
    """
    if result.state is GroupState.SUCCEEDED:
        return 0
    root = result.root_failure()
    if result.state is GroupState.FAILED and root is not None:
        if root.exitcode is not None and root.exitcode < 0:
            return _BY_SIGNAL - root.exitcode
        return root.exitcode or 1
    return _BY_SIGNAL + received[0] if received else 1


def _report(result: RunResult, *, colour: bool) -> Iterator[str]:
    """Give the report of the last attempt's failure, and else the attempts, which that lists itself."""
    if result.failures:
        headline, _, rest = str(last_failure(result)).partition("\n")
        yield painted(headline, BOLD, RED, colour=colour)
        yield f"{rest}\n"
    elif len(result.attempts) > 1:
        yield from map(describe_attempt, result.attempts)


def _end(result: RunResult, *, colour: bool) -> Iterator[str]:
    name = printable(result.name) or "run"
    attempts = f", {len(result.attempts)} attempts" if len(result.attempts) > 1 else ""
    how = painted(result.state.value, BOLD, _COLOURS.get(result.state, YELLOW), colour=colour)
    yield f"{name} {how} after {spoken(result.duration, 1)}{attempts}"
    if result.log_dir:
        yield f"logs: {printable(result.log_dir)}"
    if result.attempts and result.failures:
        last, rank = result.attempts[-1], next(iter(result.failures))
        for stream, paths in (("stderr", last.stderrs), ("stdout", last.stdouts)):
            if paths.get(rank):
                yield f"{stream} of rank {rank}: {printable(paths[rank])}"
