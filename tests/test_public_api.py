"""The face: which names are public, where they say they live, and what importing them costs."""

import inspect
import subprocess
import sys
import typing
from collections.abc import Iterator

import pytest

import aioelastic

PUBLIC = [
    "AffinityMode",
    "AioelasticError",
    "Attempt",
    "Backoff",
    "ChildFailedError",
    "ContextStateError",
    "DefaultLogsSpecs",
    "DescriptorLimitError",
    "ErrorHandler",
    "Event",
    "EventKind",
    "EventStream",
    "ExitCause",
    "ForwardedSignals",
    "GroupState",
    "LineStream",
    "LocalElasticAgent",
    "LogDirectoryError",
    "LogLine",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "NumaBindingError",
    "NumaOptions",
    "PContext",
    "ProcessFailure",
    "RankExit",
    "RankStartError",
    "RanksError",
    "Rendezvous",
    "RendezvousError",
    "RunProcsResult",
    "RunResult",
    "SpecificationError",
    "SpecificationTypeError",
    "StandaloneRendezvous",
    "StaticRendezvous",
    "Std",
    "SubprocessContext",
    "SubprocessHandler",
    "SurvivorsError",
    "WorkerSpec",
    "WorldInfo",
    "forward_signals",
    "get_error_handler",
    "get_subprocess_handler",
    "record",
    "start_processes",
    "to_map",
]


def test_the_public_names_are_these_and_sorted() -> None:
    """A name comes and goes only together with this list."""
    assert aioelastic.__all__ == PUBLIC
    assert sorted(PUBLIC) == PUBLIC


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_name_says_it_lives_in_the_package(name: str) -> None:
    """Tracebacks, pickles and documentation show ``aioelastic.X``, and each name has a docstring."""
    value = getattr(aioelastic, name)

    assert value.__module__ == "aioelastic"
    assert inspect.getdoc(value)


@pytest.mark.parametrize("name", PUBLIC)
def test_the_types_of_a_public_name_can_be_had_at_run_time(name: str) -> None:
    """What reads annotations (a checker of calls, a framework that injects) finds every type that one names."""
    for annotated in _annotated(getattr(aioelastic, name)):
        typing.get_type_hints(annotated)
        if inspect.isfunction(annotated):
            for overload in typing.get_overloads(annotated):
                typing.get_type_hints(overload)


def _annotated(value: object) -> Iterator[object]:
    """Give a public name's value and, of a class, what people call of it, inherited or its own."""
    yield value
    members = inspect.getmembers_static(value) if isinstance(value, type) else []
    for name, member in members:
        # Who wants a stream of lines calls lines().
        is_maker = name == "__init__" and value is not aioelastic.LineStream
        if name.startswith("_") and not is_maker:
            continue
        if isinstance(member, property):
            yield member.fget
        elif inspect.isroutine(member) and hasattr(member, "__annotations__"):
            yield getattr(value, name)


def test_a_program_that_reads_no_lines_loads_nothing_for_that() -> None:
    """The type of what ``lines()`` gives is known at once, the readers of files are loaded with the first call."""
    readers = [f"aioelastic._logs.{name}" for name in ("log_readers", "file_tails", "file_watch", "reading")]
    program = f"import sys, aioelastic; aioelastic.start_processes; print([m for m in {readers} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"


def test_an_unknown_name_is_an_attribute_error() -> None:
    """The lazy face answers like any module."""
    with pytest.raises(AttributeError, match="nothing_like_this"):
        aioelastic.nothing_like_this  # noqa: B018 - looking it up is the test


def test_dir_lists_the_public_names() -> None:
    """Completion in a shell works before anything is imported."""
    assert set(PUBLIC) < set(dir(aioelastic))


def test_the_version_is_the_distributions() -> None:
    """The version comes from one place."""
    assert aioelastic.__version__.count(".") >= 2


def test_importing_the_package_and_recording_costs_no_event_loop() -> None:
    """A rank that only decorates its main function imports neither asyncio nor anyio nor psutil."""
    heavy = ("asyncio", "anyio", "psutil")
    program = f"import sys, aioelastic; aioelastic.record; print([m for m in {heavy} if m in sys.modules])"

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "[]"
