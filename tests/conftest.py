"""What every test runs under: both kinds of event loop, and a check that nothing is left behind.

And special directories, for those that ask for one.
"""

import asyncio
import os
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from pathlib import Path

import hypothesis
import pytest
import uvloop

from tests.helpers.leaks import Snapshot

# Speed is measured in benchmarks/, and a busy machine is no failure.
hypothesis.settings.register_profile("unhurried", deadline=None)
hypothesis.settings.load_profile("unhurried")


def pytest_asyncio_loop_factories() -> Mapping[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every async test on asyncio's own loop and on uvloop."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture(scope="session", autouse=True)
def libuv() -> None:
    """Have libuv open the pipe for signals that it keeps for the life of the program."""
    uvloop.new_event_loop().close()


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
