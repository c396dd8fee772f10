"""Being told when somebody else writes into a file."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioelastic._logs.file_watch import FileWatch
from tests.helpers.waiting import until


class Watched:
    """A watch, and what it has told."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.watch = FileWatch(self.told.append)


@pytest.fixture
async def watched() -> AsyncIterator[Watched]:
    """Give a watch that is closed in the end."""
    made = Watched()
    yield made
    made.watch.close()


def append(path: Path) -> None:
    """Write something into a file."""
    with path.open("a") as file:
        file.write("x")


async def test_a_change_is_told_once_and_again_when_watched_again(watched: Watched, tmp_path: Path) -> None:
    """Who has been told hears of no further change before it asks for one."""
    path = tmp_path / "log"
    path.touch()
    for _ in range(2):
        watched.told.clear()
        assert watched.watch.needs("log")
        watched.watch.expect(watched.watch.add(str(path)), "log")
        assert not watched.watch.needs("log")
        append(path)
        append(path)
        await until(lambda: watched.told)
        assert watched.told == ["log"]


async def test_a_change_before_its_watch_is_known_is_told(watched: Watched, tmp_path: Path) -> None:
    """The thread that makes a watch comes back later than the kernel tells of a change: nothing is lost."""
    path = tmp_path / "log"
    path.touch()
    number = watched.watch.add(str(path))
    append(path)
    await until(lambda: watched.watch._early)
    watched.watch.expect(number, "log")

    assert watched.told == ["log"]
    assert not watched.watch._early


async def test_who_asks_while_a_watch_is_made_is_told_at_once(watched: Watched, tmp_path: Path) -> None:
    """A file has one watch, whose making may come too late for others: they are to look, with or without it."""
    path = tmp_path / "log"
    path.touch()
    assert watched.watch.needs("log")
    assert not watched.watch.needs("log")
    watched.watch.expect(None, "log")
    assert watched.told == ["log"]
    assert watched.watch.needs("log")
    assert not watched.watch.needs("log")
    watched.watch.expect(watched.watch.add(str(path)), "log")
    assert watched.told == ["log"] * 2
    append(path)
    await until(lambda: watched.told == ["log"] * 3)


async def test_more_changes_than_the_kernel_keeps_are_told_of_all(watched: Watched, tmp_path: Path) -> None:
    """When the kernel's queue is full, everybody is told to look."""
    kept = int(Path("/proc/sys/fs/inotify/max_queued_events").read_text())
    if kept > 50_000:
        pytest.skip("filling that long a queue takes too long")
    path, quiet = tmp_path / "log", tmp_path / "quiet"
    path.touch()
    quiet.touch()
    watched.watch.expect(watched.watch.add(str(quiet)), "quiet")
    assert watched.watch.needs("late")
    with path.open("ab", buffering=0) as file:
        for _ in range(kept // 2 + 1):
            watched.watch.add(str(path))
            file.write(b"x")
    await until(lambda: "quiet" in watched.told)
    watched.watch.expect(None, "late")
    assert "late" in watched.told


async def test_a_file_that_is_not_there_cannot_be_watched(watched: Watched, tmp_path: Path) -> None:
    """It is the system's own error."""
    with pytest.raises(FileNotFoundError):
        watched.watch.add(str(tmp_path / "missing"))
