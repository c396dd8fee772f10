"""Outlets over real pipes and files: what is stuck, dropped, counted and closed, and how often."""

import asyncio
import errno
import fcntl
import os
import stat
import termios
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from aioelastic._base.threads import BlockingThreads, Mailbox
from aioelastic._logs.buffers import Spool, open_spool
from aioelastic._logs.outlets import FileSink, Outlet, write_all
from tests.helpers.waiting import until

BIG = b"x" * 300_000
"""More than a pipe holds."""


class Counting:
    """A giver that adds up what it is told."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.count = 0

    def written(self, count: int) -> None:
        """Add up."""
        self.count += count


@pytest.fixture
async def threads() -> AsyncIterator[BlockingThreads]:
    """Give threads, and see them end."""
    threads = BlockingThreads("outlets", 8)
    yield threads
    await threads.close()


class StuckPipe:
    """A pipe that is full because nobody reads."""

    def __init__(self, threads: BlockingThreads) -> None:
        self.reading, writing = os.pipe()
        self.outlet = Outlet(FileSink(writing, "the pipe"), threads.submit)

    async def get_stuck(self, giver: Counting) -> None:
        """Put more than the pipe holds, and wait until a thread stands in the write."""
        self.outlet.put(giver, BIG)
        await until(lambda: is_full(self.reading), "a full pipe")

    def read(self) -> bytes:
        """Read to the end, which sets the thread free."""
        with os.fdopen(self.reading, "rb") as pipe:
            return pipe.read()


def is_full(reading: int) -> bool:
    """Tell whether a pipe of the default size is full."""
    return int.from_bytes(fcntl.ioctl(reading, termios.FIONREAD, b"\0" * 4), "little") == 65_536


def warned(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Give the warnings so far."""
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


async def test_a_second_close_leaves_the_descriptor_number_alone(threads: BlockingThreads, tmp_path: Path) -> None:
    """Closing twice never closes a file that has got the same number meanwhile."""
    descriptor = os.open(tmp_path / "mine", os.O_WRONLY | os.O_CREAT)
    outlet = Outlet(FileSink(descriptor, "mine"), threads.submit)
    closed = asyncio.Event()
    mailbox = Mailbox()
    outlet.close(lambda: mailbox.post(lambda _: closed.set(), None))
    await closed.wait()
    other = os.open(tmp_path / "other", os.O_WRONLY | os.O_CREAT)
    os.dup2(other, descriptor)

    outlet.close()
    await threads.close()

    assert stat.S_ISREG(os.fstat(descriptor).st_mode)
    for each in {descriptor, other}:
        os.close(each)


async def test_a_failure_counts_what_came_after_it_and_no_more(
    threads: BlockingThreads, caplog: pytest.LogCaptureFixture
) -> None:
    """Of a sink that fails, what came through is delivered, all else is missed, and the giver hears of all."""
    reading, writing = os.pipe()
    giver = Counting()
    outlet = Outlet(FileSink(writing, "the pipe"), threads.submit)
    outlet.put(giver, b"12345")
    await until(lambda: giver.count == 5)
    os.close(reading)
    for _ in range(3):
        outlet.put(giver, b"123")
    await until(lambda: giver.count == 14)
    outlet.close()
    await threads.close()

    assert (outlet.delivered, outlet.missed) == (5, 9)
    assert isinstance(outlet.failure, OSError)
    assert outlet.failure.errno == errno.EPIPE
    (warning,) = warned(caplog)
    assert "the pipe failed ([Errno 32] Broken pipe) and missed 9 bytes" in warning


async def test_a_partial_write_is_counted_by_what_came_through(threads: BlockingThreads) -> None:
    """When a reader goes in the middle of a large write, what it could take is not counted as missed."""
    pipe = StuckPipe(threads)
    giver = Counting()
    await pipe.get_stuck(giver)

    os.close(pipe.reading)
    await until(lambda: giver.count == len(BIG))
    pipe.outlet.close()
    await threads.close()

    assert pipe.outlet.delivered + pipe.outlet.missed == len(BIG)


async def test_what_a_giver_forgets_is_not_written(threads: BlockingThreads) -> None:
    """What waits behind a stuck write is dropped for the one giver, counted, and the other's is written in order."""
    pipe = StuckPipe(threads)
    mine, others = Counting(), Counting()
    await pipe.get_stuck(mine)
    pipe.outlet.put(mine, b"dropped")
    pipe.outlet.put(others, b"kept")
    pipe.outlet.put(mine, b"dropped")

    assert pipe.outlet.forget(mine) == 14
    pipe.outlet.close()
    assert await asyncio.to_thread(pipe.read) == BIG + b"kept"
    await until(lambda: others.count == 4)

    assert pipe.outlet.missed == 14
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_an_abandoned_outlet_warns_once(threads: BlockingThreads, caplog: pytest.LogCaptureFixture) -> None:
    """A stuck sink that is abandoned warns at once, drops what waits, and says no more when it gets free."""
    pipe = StuckPipe(threads)
    giver = Counting()
    await pipe.get_stuck(giver)
    pipe.outlet.put(giver, b"waiting")
    pipe.outlet.close()
    await pipe.outlet.abandon()
    await pipe.outlet.abandon()

    (warning,) = warned(caplog)
    assert f"the pipe was too slow and missed {len(BIG) + 7} bytes" in warning
    os.close(pipe.reading)
    await until(lambda: giver.count == len(BIG))
    await threads.close()
    assert len(warned(caplog)) == 1


async def test_an_outlet_that_is_done_is_not_abandoned(
    threads: BlockingThreads, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    """Abandoning what has closed in time, or is about to with nothing left, says nothing."""
    outlet = Outlet(FileSink(os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT), "file"), threads.submit)
    outlet.put(Counting(), b"text")
    outlet.close()
    await threads.close()
    await outlet.abandon()

    assert (tmp_path / "file").read_bytes() == b"text"
    assert not warned(caplog)


async def test_a_stuck_outlet_can_be_used_again(threads: BlockingThreads) -> None:
    """As long as a closed outlet is stuck it can be reopened, and its later bytes come after those it is stuck in."""
    pipe = StuckPipe(threads)
    giver = Counting()
    await pipe.get_stuck(giver)
    pipe.outlet.close()
    await pipe.outlet.abandon()

    assert pipe.outlet.reopen()
    pipe.outlet.put(giver, b"again")
    pipe.outlet.close()
    assert await asyncio.to_thread(pipe.read) == BIG + b"again"
    await until(lambda: giver.count == len(BIG) + 5)
    await threads.close()
    assert not pipe.outlet.reopen()
    await asyncio.get_running_loop().shutdown_default_executor()


async def test_more_pieces_than_one_call_takes(tmp_path: Path) -> None:
    """Any number of pieces, empty ones too, are written in order."""
    pieces = [b"%d," % number for number in range(5000)] + [b"", b"end", b""]
    descriptor = os.open(tmp_path / "file", os.O_WRONLY | os.O_CREAT)
    write_all(descriptor, pieces)
    os.close(descriptor)

    assert (tmp_path / "file").read_bytes() == b"".join(pieces)


async def test_a_spool_begins_anew_without_losing_its_count(threads: BlockingThreads) -> None:
    """Used many times over, a spool gives the bytes of the right position, takes no more space, and owes nothing."""
    descriptor = open_spool()
    spool = Spool(descriptor, threads, Mailbox())
    position = 0
    for number in range(50):
        spool.keep(b"taken by all", needed=False)
        position += 12
        piece = b"%d!" % number * 10_000
        spool.keep(piece, needed=True)
        got = b""
        while len(got) < len(piece):
            start, data = await spool.read(position + len(got))
            assert start == position + len(got)
            got += data
        position += len(piece)
        assert got == piece
    await until(lambda: spool.backlog == 0)

    assert os.fstat(descriptor).st_size <= 30_000
    await spool.close()
