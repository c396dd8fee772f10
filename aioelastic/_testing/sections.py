"""What the report of a failed test shows of the ranks: how each one ended, and its last lines."""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from aioelastic._contexts.context import PContext
from aioelastic._contexts.results import RunProcsResult
from aioelastic._errors.error_files import shortened
from aioelastic._errors.exceptions import ContextStateError
from aioelastic._errors.log_tail import log_tail, printable
from aioelastic._errors.report import describe_exit
from aioelastic._supervision.exits import ExitCause

_RANKS_SHOWN: Final = 8
"""Ranks with a section; of the others a line tells how they ended."""

_FAILURE_LIMIT: Final = 4 * 1024
"""Characters shown of a traceback, as many as of a log."""


class _Rank(NamedTuple):
    """A rank as it stands when a test has failed."""

    title: str
    has_failed: bool
    failure: str
    logs: dict[str, str]

    def text(self) -> str:
        """Write how it failed, and the end of each log that is not empty."""
        parts = [self.failure] if self.failure else []
        for stream, path in self.logs.items():
            lines = log_tail(path)
            # A failure without a traceback has brought the end of stderr along.
            if lines and lines not in self.failure:
                parts.append(f"{stream}, {printable(path)}:\n{lines}")
        return "\n".join(parts) or ("no output" if all(self.logs.values()) else "no output in files")


def describe_ranks(contexts: Iterable[PContext]) -> list[tuple[str, str]]:
    """Give sections for a report, a title and a text for each rank, those of ranks that have failed first."""
    ranks = sorted((rank for context in contexts for rank in _ranks(context)), key=lambda rank: not rank.has_failed)
    sections = [(rank.title, rank.text()) for rank in ranks[:_RANKS_SHOWN]]
    if more := ranks[_RANKS_SHOWN:]:
        sections.append((f"{len(more)} more ranks", "\n".join(rank.title for rank in more)))
    return sections


def _ranks(context: PContext) -> Iterator[_Rank]:
    result = _result(context)
    for rank in context.pids():
        failure = None if result is None else result.failures.get(rank)
        yield _Rank(
            title=f"rank {rank} of {printable(context.name)}: {_standing(result, rank)}",
            has_failed=failure is not None,
            failure=""
            if failure is None
            else printable(shortened(failure.traceback or failure.message, _FAILURE_LIMIT)),
            logs={"stdout": context.stdouts.get(rank, ""), "stderr": context.stderrs.get(rank, "")},
        )


def _standing(result: RunProcsResult | None, rank: int) -> str:
    if result is None:
        return "running"
    if rank in result.failures:
        return f"exit code {describe_exit(result.failures[rank])}"
    known = result.exits.get(rank)
    if known is None:
        return "end unknown"
    return known.cause.value if known.cause is not ExitCause.ENDED else f"exit code {known.exitcode}"


def _result(context: PContext) -> RunProcsResult | None:
    """Ask for the result, if there is one; its loop may be closed by now."""
    try:
        # Without a time to wait it never waits, and needs no loop.
        context.wait(timeout=0).send(None)
    except StopIteration as answer:
        result: RunProcsResult | None = answer.value
        return result
    except ContextStateError:
        pass  # it was not started, or its loop ended before it
    return None
