"""Starting groups of function ranks, up to the point where they said that they are ready."""

from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from aioelastic import PContext, RunProcsResult, start_processes
from tests.helpers.function_worlds import call
from tests.helpers.waiting import until

METHODS: Final = ("spawn", "fork", "forkserver")
"""The ways to start a function rank."""

FORK_WARNING: Final = "ignore:.*multi-threaded.*fork:DeprecationWarning"
"""What Python says of a fork in a worker of pytest-xdist, which has a thread."""


async def run_functions(
    method: str, function: Callable[..., Any], *calls: tuple[Any, ...], **options: Any
) -> RunProcsResult:
    """Run a group named ``job`` to its result, one rank per call; a single one without arguments if there are none."""
    args = dict(enumerate(calls or [()]))
    async with start_processes("job", function, args, start_method=method, **options) as context:
        result = await context.wait(timeout=60)
    assert result is not None
    return result


async def values_of(method: str, function: Callable[..., Any], *calls: tuple[Any, ...], **options: Any) -> list[Any]:
    """Run a group to its good end, and give what its ranks returned."""
    result = await run_functions(method, function, *calls, **options)
    assert not result.is_failed(), result.failures
    return [result.return_values[rank] for rank in range(len(result.exits))]


@asynccontextmanager
async def function_group(
    method: str, folder: Path, *functions: Callable[..., Any], **options: Any
) -> AsyncIterator[PContext]:
    """Give a running group, once each rank has made its file ``ready RANK``; its function is given the path."""
    async with start_processes(
        "job", call, {rank: (each, ready(folder, rank)) for rank, each in enumerate(functions)}, start_method=method,
        **options,
    ) as context:  # fmt: skip
        await all_ready(folder, range(len(functions)))
        yield context


def ready(folder: Path, rank: int) -> str:
    """Give the path of the file by which a rank tells that it is ready."""
    return str(folder / f"ready {rank}")


async def all_ready(folder: Path, ranks: Iterable[int]) -> None:
    """Wait until these ranks are ready."""
    await until(lambda: all(Path(ready(folder, rank)).exists() for rank in ranks), "every rank")
