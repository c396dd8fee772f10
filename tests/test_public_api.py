"""The face: which names are public, where they say they live, and what importing them costs."""

import inspect
import subprocess
import sys

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
