"""Failures: recorded in the ranks, raised and read in the supervisor."""

from typing import Any, assert_type

from aioelastic import (
    AioelasticError,
    ChildFailedError,
    DescriptorLimitError,
    ErrorHandler,
    LogDirectoryError,
    NumaBindingError,
    ProcessFailure,
    RanksError,
    RankStartError,
    RendezvousError,
    SpecificationError,
    SpecificationTypeError,
    SurvivorsError,
    get_error_handler,
    record,
    start_processes,
)


@record
def main(path: str, *, steps: int = 1) -> int:
    """Do the work of a rank."""
    return len(path) * steps


@record
async def serve(port: int) -> str:
    """Do the work of a rank that has a loop."""
    return str(port)


@record()
def plain() -> None:
    """Do the work of a rank whose author writes the parentheses."""


@record(error_handler=ErrorHandler())
def handled() -> None:
    """Do the work of a rank with a handler of its own."""


async def recorded() -> None:
    """Call them: what they take is what it was, and they return nothing when a child's failure was passed on."""
    assert_type(main("path", steps=2), int | None)
    assert_type(await serve(80), str | None)
    plain()
    handled()
    handler = get_error_handler()
    assert_type(handler, ErrorHandler)
    handler.initialize()
    assert_type(handler.dump_error_file("error.json", error_code=2), bool)


async def raised() -> None:
    """Catch what a group raises."""
    try:
        async with start_processes("job", "false", args={0: ()}) as context:
            (await context.wait()).raise_for_failures()
    except ChildFailedError as error:
        rank, failure = error.get_first_failure()
        assert_type(rank, int)
        assert_type(failure, ProcessFailure)
        assert_type((failure.local_rank, failure.pid, failure.exitcode), tuple[int, int, int | None])
        assert_type(failure.error_file_data, dict[str, Any])
        assert_type((failure.message, failure.traceback, failure.signal_name()), tuple[str, str, str])
        assert_type((failure.timestamp, failure.timestamp_isoformat()), tuple[float, str])
    except (RankStartError, LogDirectoryError, DescriptorLimitError) as error:
        assert_type(error.errno, int | None)
    except AioelasticError as error:
        print(error)


def kinds(error: Exception) -> str:
    """Tell errors apart: they are the usual kinds, too."""
    match error:
        case SpecificationTypeError() | RanksError() | SpecificationError():
            as_usual: ValueError = error
        case NumaBindingError() | RendezvousError() | SurvivorsError():
            return assert_type(str(error), str)
        case _:
            as_usual = ValueError(error)
    return str(as_usual)
