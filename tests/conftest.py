"""What every test runs under: both kinds of event loop, and a check that nothing is left behind.

And special directories, for those that ask for one.
"""

import asyncio
import os
import pickle
import re
import signal
import sys
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from multiprocessing.context import SpawnProcess
from multiprocessing.util import get_temp_dir
from pathlib import Path
from typing import Final

import hypothesis
import pytest
import uvloop

from aioelastic._processes.fork_server import request_process, start_resource_tracker
from aioelastic._processes.function_calls import Handover
from tests.helpers import sampling
from tests.helpers.leaks import Snapshot
from tests.helpers.sampling import sample

LOOPS: Final = {"asyncio", "uvloop"}
METHODS: Final = {"spawn", "fork", "forkserver"}
"""The words in the names of cases that tell the event loop, and the start method."""

LOOP_FIXTURE: Final = "_asyncio_loop_factory"
"""What pytest-asyncio calls the parameter that it makes of the loops."""

# Thousands of processes run code of the package and of the tests: compile it once, not in each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# Speed is measured in benchmarks/, and a busy machine is no failure.
hypothesis.settings.register_profile("sample", deadline=None, max_examples=30)
hypothesis.settings.register_profile("everything", deadline=None)


def pytest_asyncio_loop_factories(
    config: pytest.Config, item: pytest.Item
) -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every async test on asyncio's own loop or on uvloop: the next Python takes the other one."""
    factories = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}
    if config.getoption("--every-case"):
        return factories
    [(name, factory)] = sample([*factories.items()], 2, item.nodeid)
    return {name: factory}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add what a developer may ask for."""
    parser.addoption("--every-case", action="store_true", help="run cases that differ only in loop or method, too")


def pytest_configure(config: pytest.Config) -> None:
    """Tell of a marker, say how many examples properties are tried with, refuse a world that the ranks would have."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        raise pytest.UsageError("SIGINT is ignored, as in what a script starts with &: the ranks would ignore it, too")
    config.addinivalue_line("markers", "one_of(*names): of cases that differ only in these parameters, run one")
    config.addinivalue_line(
        "markers", "half: of the cases of a test, run every second one, the others on the next Python"
    )
    sampling.EVERY_CASE = config.getoption("--every-case")
    hypothesis.settings.load_profile("everything" if config.getoption("--every-case") else "sample")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Of cases that differ in what matters little, run one; where it is marked, of all cases of a test, the half.

    Processes are slow to start, and most of what they do has nothing to do with these. Which case is run depends on
    the test's name and on the Python: the next one takes the next case.
    """
    if config.getoption("--every-case"):
        return
    chosen = {*_sampled(items, _name_of_group, None)}
    halves = [item for item in items if item in chosen and item.get_closest_marker("half")]
    chosen -= {*halves} - {*_sampled(halves, lambda item: item.nodeid.partition("[")[0], 2)}
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = [item for item in items if item in chosen]


def _sampled(
    items: list[pytest.Item], name_of: Callable[[pytest.Item], str], share: int | None
) -> Iterator[pytest.Item]:
    """Of each group of so many items, or of all, with the same name, choose one."""
    groups: dict[str, list[pytest.Item]] = {}
    for item in items:
        groups.setdefault(name_of(item), []).append(item)
    for name, group in groups.items():
        yield from sample(group, share or len(group), name)


def _name_of_group(item: pytest.Item) -> str:
    words = LOOPS | METHODS if item.get_closest_marker("one_method") else LOOPS
    if (marker := item.get_closest_marker("one_of")) and isinstance(item, pytest.Function):
        names = {*marker.args, LOOP_FIXTURE}
        given = item.callspec.params.items()
        values = ("*" if name in names or str(value) in words else str(value) for name, value in given)
        return "-".join([item.nodeid.partition("[")[0], *values])
    return "-".join("*" if word in words else word for word in re.split(r"[-\[\]]", item.nodeid))


@pytest.fixture(scope="session", autouse=True)
def libuv() -> None:
    """Have libuv open the pipe for signals that it keeps for the life of the program."""
    uvloop.new_event_loop().close()


@pytest.fixture(scope="session", autouse=True)
def temporary_directory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Have what is made in the system's temporary directory made in one that goes with the tests.

    A supervisor that is killed, or whose logs are to be read, leaves them there. It is not pytest's own directory,
    whose name is so long that some systems would refuse the fork server's socket.
    """
    tmp_path_factory.getbasetemp()
    get_temp_dir()  # of multiprocessing, which removes it only at the end of the program
    with (
        tempfile.TemporaryDirectory(prefix="a-", ignore_cleanup_errors=True) as name,
        pytest.MonkeyPatch.context() as set_,
    ):
        Path(name).chmod(0o1777)  # as the system's is: some ranks are another user's
        set_.setenv("TMPDIR", name)
        set_.setattr(tempfile, "tempdir", name)
        yield


@pytest.fixture(scope="session", autouse=True)
def helper_processes(temporary_directory: None) -> None:
    """Start the resource tracker and the fork server, which stay for the life of the program."""
    start_resource_tracker()
    told, data = request_process([])
    with Handover("spawn").pickling():
        # Without anything to do it ends well; without anything to read it would complain on stderr.
        os.write(data, pickle.dumps({}) + pickle.dumps(SpawnProcess()))
    while os.read(told, 8):  # its pid, then its exit code
        pass
    os.close(told)
    os.close(data)


@pytest.fixture(autouse=True)
def no_leaks(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that leaves a process, a descriptor, a thread or a task behind."""
    if request.node.get_closest_marker("asyncio"):
        # The loop's own descriptors are made and closed around an async test: look from inside of it.
        request.getfixturevalue("no_leaks_inside_the_loop")
        yield
        return
    before = Snapshot.take()
    yield
    before.compare_until_clean()


@pytest.fixture
async def no_leaks_inside_the_loop() -> AsyncIterator[None]:
    """Take stock within the test's event loop, before and after."""
    before = Snapshot.take()
    yield
    await before.compare_until_clean_async()


@pytest.fixture
def elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Go to a directory of the test's own, and back."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.fixture
def open_directory() -> Iterator[Path]:
    """Make a directory that other users can enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path
