"""The way in through a file: what the loop is given, and what happens when the file is stuck, emptied or cut."""

import asyncio
import contextlib
import os
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from aioelastic._base.defaults import PIECE_BYTES
from aioelastic._base.threads import BlockingThreads, Mailbox
from aioelastic._logs import file_intake
from aioelastic._logs.file_intake import FileIntake
from aioelastic._logs.files import open_log
from aioelastic._logs.turns import Turns
from tests.helpers.waiting import until


class Collecting:
    """A receiver that keeps what it is offered."""

    keeps_up = True

    def __init__(self) -> None:
        self.chunks: list[bytes] = []
        self.missed = 0
        self.ended = False

    @property
    def data(self) -> bytes:
        """All so far."""
        return b"".join(self.chunks)

    def offer(self, chunk: bytes) -> None:
        """Keep it."""
        assert not self.ended
        self.chunks.append(chunk)

    def miss(self, count: int) -> None:
        """Add up."""
        self.missed += count

    def end(self) -> None:
        """Note it."""
        assert not self.ended
        self.ended = True


class Stream:
    """A pipe, an intake that moves it into a file, and a receiver."""

    def __init__(self, path: Path, threads: BlockingThreads, turns: Turns | None = None) -> None:
        reading, self.writing = os.pipe()
        self.path = path
        self.receiver = Collecting()
        self.intake = FileIntake(reading, open_log(str(path)), str(path), threads, Mailbox(), turns or Turns())
        self.intake.connect(self.receiver)

    def write(self, data: bytes) -> None:
        """Write as the rank."""
        os.write(self.writing, data)

    async def end(self) -> None:
        """End the stream as the rank does, and close."""
        os.close(self.writing)
        await until(lambda: self.receiver.ended, "the end")
        await self.intake.close()


@pytest.fixture
async def stream(tmp_path: Path) -> AsyncIterator[Stream]:
    """Give a stream, and see its threads end."""
    threads = BlockingThreads("intakes", 8)
    yield Stream(tmp_path / "log", threads)
    await threads.close()


class HeldTurns(Turns):
    """Turns that come when the test says so."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[Callable[[], None]] = []

    def ask(self, deliver: Callable[[], None]) -> None:
        """Keep it waiting."""
        self.asked.append(deliver)


class StuckDisk:
    """Holds up every splice until it is set free."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._real: Callable[..., int] = os.splice
        self._free = threading.Event()
        self.begun = threading.Event()
        monkeypatch.setattr(os, "splice", self._splice)

    def _splice(self, *args: Any, **kwargs: Any) -> int:
        self.begun.set()
        self._free.wait()
        return self._real(*args, **kwargs)

    def set_free(self) -> None:
        """Go on."""
        self._free.set()


async def test_all_is_in_the_file_and_handed_on_in_chunks(stream: Stream) -> None:
    """The receiver gets what the file gets, in chunks of a size that keeps the loop going, then the end."""
    written = b"".join(b"%d\n" % number for number in range(100_000))
    stream.intake.begin()

    def write() -> None:
        left = written
        while left:
            left = left[os.write(stream.writing, left) :]

    await asyncio.to_thread(write)
    await stream.end()

    assert stream.path.read_bytes() == written
    assert stream.receiver.data == written
    assert max(map(len, stream.receiver.chunks)) <= PIECE_BYTES
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_nothing_is_taken_before_the_beginning(stream: Stream) -> None:
    """Until it may begin, all stays in the pipe."""
    stream.write(b"early\n")
    await asyncio.sleep(0.05)
    before = stream.path.read_bytes()
    stream.intake.begin()
    await until(lambda: stream.receiver.chunks)
    await stream.end()

    assert before == b""
    assert stream.path.read_bytes() == b"early\n"


async def test_a_stopped_stream_hands_nothing_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is being moved when a stream is stopped goes to nobody, also if the stream's turn is still to come."""
    threads = BlockingThreads("intakes", 8)
    turns = HeldTurns()
    stream = Stream(tmp_path / "log", threads, turns)
    stream.intake.begin()
    stream.write(b"one\n")
    await until(lambda: turns.asked)
    disk = StuckDisk(monkeypatch)
    stream.write(b"two\n")
    await until(disk.begun.is_set)
    stream.intake.stop()
    disk.set_free()
    await stream.intake.close()
    for deliver in turns.asked:
        deliver()
    os.close(stream.writing)
    await threads.close()

    assert stream.receiver.data == b"one\n"  # and `Collecting` refuses what comes after the end
    assert stream.path.read_bytes() == b"one\ntwo\n"


async def test_a_cut_takes_what_came_behind_a_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What fills the pipe again while a move is over, and the loop has not heard of it, is not left there by a cut."""
    threads = BlockingThreads("intakes", 8)
    stream = Stream(tmp_path / "log", threads)
    monkeypatch.setattr(file_intake, "PIPE_BYTES", 4)
    disk = StuckDisk(monkeypatch)
    stream.intake.begin()
    stream.write(b"one\n")
    await until(disk.begun.is_set)
    stream.intake.cut()
    disk.set_free()
    while not stream.path.read_bytes():  # without the loop, which would hear of the move
        disk.begun.wait(0.001)
    stream.write(b"two\n")
    await until(lambda: stream.receiver.ended)
    await stream.intake.close()
    os.close(stream.writing)
    await threads.close()

    assert stream.path.read_bytes() == stream.receiver.data == b"one\ntwo\n"


async def test_a_cut_takes_what_is_in_the_pipe(stream: Stream) -> None:
    """After a cut the file and the receiver have what had been written, and nothing of what comes later."""
    stream.intake.begin()
    await asyncio.sleep(0)
    stream.write(b"before\n")
    stream.intake.cut()
    stream.intake.cut()
    await until(lambda: stream.receiver.ended)
    with contextlib.suppress(BrokenPipeError):
        stream.write(b"after\n")
    os.close(stream.writing)
    await stream.intake.close()

    assert stream.path.read_bytes() == stream.receiver.data == b"before\n"


async def test_a_cut_during_a_move_takes_what_came_after_it(stream: Stream, monkeypatch: pytest.MonkeyPatch) -> None:
    """A move that has looked at the pipe too early is not the last one."""
    disk = StuckDisk(monkeypatch)
    stream.intake.begin()
    stream.write(b"one\n")
    await until(disk.begun.is_set)
    stream.write(b"two\n")
    stream.intake.cut()
    assert not stream.receiver.ended
    disk.set_free()
    await until(lambda: stream.receiver.ended)
    os.close(stream.writing)
    await stream.intake.close()

    assert stream.path.read_bytes() == stream.receiver.data == b"one\ntwo\n"


async def test_a_flood_is_cut(stream: Stream) -> None:
    """Somebody who writes all the time does not put off the end."""
    os.set_blocking(stream.writing, False)
    stream.write(b"x")
    flooding = True

    def flood() -> None:
        while flooding:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                stream.write(b"x" * 65_536)

    flooder = threading.Thread(target=flood)
    flooder.start()
    stream.intake.cut()
    await until(lambda: stream.receiver.ended)
    flooding = False
    flooder.join()
    os.close(stream.writing)
    await stream.intake.close()

    assert 0 < len(stream.receiver.data) <= 1024 * 1024 + 4 * 65_536
    assert stream.path.read_bytes() == stream.receiver.data


async def test_a_stuck_disk_holds_up_neither_loop_nor_end(
    stream: Stream, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """While a move is stuck the stream can be stopped; one warning says so, and the thread closes the descriptors."""
    disk = StuckDisk(monkeypatch)
    stream.intake.begin()
    stream.write(b"one\n")
    await until(disk.begun.is_set)
    stream.intake.cut()
    stream.intake.stop()
    assert stream.receiver.ended
    closing = asyncio.create_task(stream.intake.close())
    await asyncio.sleep(0.01)
    closing.cancel()
    await asyncio.wait([closing])
    (warning,) = [record.getMessage() for record in caplog.records]
    disk.set_free()
    await until(lambda: not Path(f"/proc/self/fd/{stream.intake.file}").exists())
    os.close(stream.writing)

    assert closing.cancelled()
    assert f"log file '{stream.path}' was too slow" in warning
    assert stream.path.read_bytes() == b"one\n"


async def test_a_file_that_fails_as_it_is_closed_holds_up_no_end(
    stream: Stream, caplog: pytest.LogCaptureFixture
) -> None:
    """What the system tells of a file only as it is closed is said, and the stream ends all the same."""
    caplog.set_level("INFO", "aioelastic")
    stream.intake.begin()
    stream.intake.stop()
    os.close(stream.intake.file)
    async with asyncio.timeout(10):
        await stream.intake.close()
    os.close(stream.writing)

    (said,) = [record.getMessage() for record in caplog.records]
    assert f"log file '{stream.path}' failed ([Errno 9]" in said


async def test_an_emptied_file_is_read_back_from_its_new_beginning(stream: Stream) -> None:
    """What was in the file before somebody emptied it is lost to readers, what comes after it is found."""
    stream.intake.begin()
    stream.write(b"gone\n")
    await until(lambda: stream.receiver.data == b"gone\n")
    assert await stream.intake.read(0) == (0, b"gone\n")
    os.truncate(stream.path, 0)
    assert await stream.intake.read(0) == (5, b"")
    stream.write(b"a longer line\n")
    await until(lambda: len(stream.receiver.chunks) == 2)

    assert await stream.intake.read(0) == (5, b"a longer line\n")
    assert await stream.intake.read(7) == (7, b"longer line\n")
    await stream.end()


async def test_a_file_that_is_emptied_during_a_read_makes_nothing_up(
    stream: Stream, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that finds other bytes at the place of those it came for does not take them."""
    stream.intake.begin()
    stream.write(b"old line\n")
    await until(lambda: stream.receiver.chunks)
    real = os.pread

    def late(descriptor: int, count: int, place: int) -> bytes:
        monkeypatch.undo()
        os.truncate(stream.path, 0)
        stream.write(b"new line\n")
        deadline = threading.Event()
        while stream.path.stat().st_size < 9:
            deadline.wait(0.001)
        return real(descriptor, count, place)

    monkeypatch.setattr(os, "pread", late)
    start, data = await stream.intake.read(0)

    assert (start, data) in {(9, b""), (9, b"new line\n")}
    await stream.end()
