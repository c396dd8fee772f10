"""A group's logs as a whole: nothing stays open, whatever fails or is cancelled in between."""

import asyncio
import os
import stat
import sys
import threading
from pathlib import Path

import pytest

from aioelastic import RankStartError
from aioelastic._logs import group_logs
from aioelastic._logs.consoles import Console, acquire_console
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.files import open_log
from aioelastic._logs.group_logs import GroupLogs
from aioelastic._logs.routes import route_group
from tests.helpers.waiting import until


def make_logs(dest: LogsDest, nprocs: int = 1) -> GroupLogs:
    """Give the logs of a group with filters on both streams."""
    routes = route_group(dest, nprocs, None, stdout_filtered=True, stderr_filtered=True)
    return GroupLogs(routes, {rank: f"[{rank}]:" for rank in range(nprocs)}, {"stdout": ["x"], "stderr": ["x"]})


def teed(folder: Path, filtered_stderr: str = "filtered") -> LogsDest:
    """Tee both streams of rank 0."""
    out, err = {0: str(folder / "out")}, {0: str(folder / "err")}
    return LogsDest(
        out, err, out, err, filtered_stdout=str(folder / "f"), filtered_stderr=str(folder / filtered_stderr)
    )


def descriptors() -> int:
    """Count the open descriptors."""
    return len(list(Path("/proc/self/fd").iterdir()))


async def test_an_opening_that_fails_half_way_leaves_nothing(tmp_path: Path) -> None:
    """When the last file of many cannot be opened, the drain that follows closes all the others."""
    before = descriptors()
    logs = make_logs(teed(tmp_path, "missing/filtered"))

    with pytest.raises(RankStartError, match="missing/filtered"):
        await logs.open()
    await logs.drain({})

    assert descriptors() == before


async def test_an_opening_that_is_cancelled_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files that a thread goes on opening after the cancellation are closed by it."""
    before = descriptors()
    opened, go = threading.Event(), threading.Event()

    def slowly(path: str) -> int:
        opened.set()
        go.wait()
        return open_log(path)

    monkeypatch.setattr(group_logs, "open_log", slowly)
    logs = make_logs(teed(tmp_path))
    opening = asyncio.create_task(logs.open())
    while not opened.is_set():
        await asyncio.sleep(0.001)
    opening.cancel()
    await asyncio.wait([opening])
    await logs.drain({})
    go.set()

    while any(thread.name == "aioelastic: _open_files" for thread in threading.enumerate()):
        await asyncio.sleep(0.001)
    assert descriptors() == before


async def test_logs_that_were_never_handed_over_are_closed(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A group whose ranks never started leaves nothing open, no thread and no console in use."""
    before = descriptors()
    logs = make_logs(teed(tmp_path))
    await logs.open()

    await logs.drain({})

    assert descriptors() == before


async def test_who_outlives_us_gets_pipes_and_files(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each pumped stream that has not ended has its pipe, and the file for the rest: the log, or a nameless one."""
    os.mkfifo(tmp_path / "fifo")
    files = {0: str(tmp_path / "own"), 1: str(tmp_path / "both"), 2: str(tmp_path / "fifo"), 3: os.devnull}
    logs = make_logs(LogsDest(files, {0: str(tmp_path / "only"), 1: files[1]}, files, {1: files[1]}), 4)
    await logs.open()
    pumped = {}
    for rank in range(4):
        assert logs.pumped(rank) == []
        with logs.handing_over(rank) as stdio:
            os.write(stdio["stdout"] or 0, b"%d\n" % rank)
            pumped[rank] = logs.pumped(rank)
            about = [(os.fstat(pipe), os.fstat(file)) for pipe, file in pumped[rank]]
        assert all(stat.S_ISFIFO(pipe.st_mode) and stat.S_ISREG(file.st_mode) for pipe, file in about)
        for _, file in about:
            named = rank < 2
            assert (file.st_nlink, file.st_ino == Path(files[rank]).stat().st_ino) == (int(named), named)
    await until(lambda: logs.pumped(0) == [], "the end of the stream")
    reading = os.open(files[2], os.O_RDONLY | os.O_NONBLOCK)
    await logs.drain({})
    os.close(reading)

    assert {rank: len(pairs) for rank, pairs in pumped.items()} == {0: 1, 1: 2, 2: 1, 3: 1}
    assert (tmp_path / "own").read_bytes() == b"0\n"


async def test_a_drain_can_be_cancelled_and_called_again(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """After a cancelled drain a second one, and a third one, end it: the bytes are there, nothing is closed twice."""
    before = descriptors()
    logs = make_logs(teed(tmp_path))
    await logs.open()
    with logs.handing_over(0) as stdio:
        held = os.dup(stdio["stdout"] or 0)
        os.write(held, b"x before\n")
    draining = asyncio.create_task(logs.drain({0: asyncio.get_running_loop().time() + 60}))
    await asyncio.sleep(0.01)
    draining.cancel()
    await asyncio.wait([draining])
    os.write(held, b"last")

    await logs.drain({})
    await logs.drain({})
    os.close(held)

    assert (tmp_path / "out").read_bytes() == b"x before\nlast"
    assert (tmp_path / "f").read_bytes() == b"[0]:x before\n"
    assert capfd.readouterr().out == "[0]:x before\n[0]:last\n"
    assert descriptors() == before


async def test_a_drain_cancelled_at_any_step_is_finished_by_the_next(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Wherever a cancellation hits a drain, the next one closes all, once: consoles of others stay in use."""
    others = acquire_console("stdout")
    assert others is not None
    before = descriptors()
    for steps in range(40):
        folder = tmp_path / str(steps)
        folder.mkdir()
        logs = make_logs(teed(folder))
        await logs.open()
        with logs.handing_over(0) as stdio:
            os.write(stdio["stdout"] or 0, b"x\n")
        draining = asyncio.create_task(logs.drain({}))
        for _ in range(steps):
            await asyncio.sleep(0)
        draining.cancel()
        await asyncio.wait([draining])
        await logs.drain({})
        assert (folder / "out").read_bytes() == b"x\n"
        assert others.users == 1
    await others.release()

    assert descriptors() == before - 1


@pytest.mark.parametrize("steps", [0, 1])
async def test_the_end_of_the_loop_leaves_no_descriptor(tmp_path: Path, steps: int) -> None:
    """When everything is cancelled at once, as at the end of asyncio.run, a drain closes files and pipes.

    Also those of a stream that has just begun.
    """
    before = descriptors()
    logs = make_logs(teed(tmp_path))
    await logs.open()
    with logs.handing_over(0) as stdio:
        held = os.dup(stdio["stdout"] or 0)
    os.write(held, b"something\n")
    for _ in range(steps):
        await asyncio.sleep(0)
    ours = asyncio.all_tasks() - {asyncio.current_task()}
    pumps = [task for task in ours if "StreamPump" in repr(task)]
    for task in pumps:
        task.cancel()
    await asyncio.wait(pumps)

    await logs.drain({})
    os.close(held)

    assert len(pumps) == 2
    assert descriptors() == before


async def test_streams_on_the_same_file_share_a_console(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two names of one open file are one console; it lives until its last user has released it."""
    monkeypatch.setattr(sys, "stderr", sys.stdout)
    before = descriptors()

    consoles = [acquire_console("stdout"), acquire_console("stderr"), acquire_console("stdout")]

    first = consoles[0]
    assert isinstance(first, Console)
    assert all(console is first for console in consoles)
    assert descriptors() == before + 1
    for _ in consoles:
        await first.release()
    assert descriptors() == before
    again = acquire_console("stdout")
    assert again is not None
    assert again is not first
    await again.release()
