"""The supervisor's end of a rank's value pipe, by itself: whatever comes, and in whatever pieces."""

import asyncio
import gc
import os
import pickle
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from aioelastic._child.value_pipe import BASIC_VALUE, HEAD, REPORT, VALUE, Message, send
from aioelastic._processes.value_receiver import ValueReceiver
from tests.helpers.waiting import until

PAGE = os.sysconf("SC_PAGE_SIZE")


def message(value: Any) -> bytes:
    """Give what a rank sends that returns a value."""
    data = pickle.dumps(value, 5)
    return HEAD.pack(VALUE, len(data)) + data


def memory_now() -> int:
    """Give the memory that this process takes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def write_in_thread(descriptor: int, pieces: Sequence[bytes]) -> "asyncio.Task[None]":
    """Send a value as a rank does, meanwhile."""
    return asyncio.create_task(_written(descriptor, pieces))


async def _written(descriptor: int, pieces: Sequence[bytes]) -> None:
    os.set_blocking(descriptor, False)
    for piece in pieces:
        view = memoryview(piece)
        while view:
            try:
                view = view[os.write(descriptor, view) :]
            except BlockingIOError:
                await asyncio.sleep(0)
    os.close(descriptor)


@asynccontextmanager
async def receiving() -> AsyncIterator[tuple[ValueReceiver, int]]:
    """Give a receiver, and the end of its pipe that a rank has; the test closes that."""
    reading, writing = os.pipe()
    receiver = ValueReceiver(reading)
    try:
        yield receiver, writing
    finally:
        receiver.discard()


async def received(data: bytes) -> ValueReceiver:
    """Give a receiver that has got these bytes from a rank that has ended."""
    reading, writing = os.pipe()
    receiver = ValueReceiver(reading)
    os.write(writing, data)
    os.close(writing)
    receiver.close()
    return receiver


@pytest.mark.parametrize("value", [None, 0, "text", b"", [1, {"a": (2, 3)}], b"x" * 50_000])
async def test_a_message_in_one_piece_is_the_value(value: object) -> None:
    """What was in the pipe when the rank ended is there without a turn of the loop."""
    receiver = await received(message(value))

    assert receiver.problem() == ""
    assert receiver.report == b""
    assert receiver.unpickle() == value


async def test_a_message_in_single_bytes_is_the_value() -> None:
    """Head and body may come in any pieces, with the loop turning in between."""
    async with receiving() as (receiver, writing):
        for number in message(["value"]):
            os.write(writing, bytes([number]))
            await asyncio.sleep(0)
        os.close(writing)
        receiver.close()

        assert receiver.problem() == ""
        assert receiver.unpickle() == ["value"]


async def test_a_message_larger_than_the_pipe_is_the_value() -> None:
    """It is read while it is written, by the loop alone."""
    big = bytes(range(256)) * 40_000
    async with receiving() as (receiver, writing):
        await write_in_thread(writing, [message(big)])
        receiver.close()

        assert receiver.problem() == ""
        assert receiver.unpickle() == big


@pytest.mark.parametrize("kind", [VALUE, BASIC_VALUE])
async def test_what_the_ranks_end_sends_is_understood(kind: bytes) -> None:
    """Both ends agree on the form."""
    data = pickle.dumps("in ")
    async with receiving() as (receiver, writing):
        send(writing, Message(kind, [data[:3], b"", data[3:]]))
        receiver.close()

        assert receiver.unpickle() == "in "


async def test_the_pipe_is_closed_once_the_message_is_whole() -> None:
    """A child of the rank's that holds the other end and writes on gets a broken pipe, and changes nothing."""
    async with receiving() as (receiver, writing):
        os.write(writing, message(3))
        await until(lambda: receiver._source is None)
        with pytest.raises(BrokenPipeError):
            os.write(writing, b"more")
        os.close(writing)

        assert receiver.problem() == ""
        assert receiver.unpickle() == 3


async def test_an_open_pipe_without_more_to_come_holds_up_nothing() -> None:
    """Closing takes what is there and waits for nobody."""
    async with receiving() as (receiver, writing):
        os.write(writing, message("whole")[:-1])
        receiver.close()
        os.close(writing)

        assert receiver.problem() != ""


@pytest.mark.parametrize("length", [1, 5, HEAD.size - 1])
async def test_half_a_head_is_no_value(length: int) -> None:
    """Nothing is known of the size; it is said that no value came."""
    receiver = await received(message("value")[:length])

    assert "returned no value" in receiver.problem()
    assert receiver.report == b""
    receiver.discard()


async def test_nothing_is_no_value() -> None:
    """A rank that ends without a word has returned no value."""
    receiver = await received(b"")

    assert receiver.problem().startswith("It ended with exit code 0 but returned no value")
    with pytest.raises(EOFError):
        receiver.unpickle()
    receiver.discard()


@pytest.mark.parametrize("received_bytes", [0, 1, 40_000])
async def test_a_cut_message_is_no_value(received_bytes: int) -> None:
    """How much has come of how much is said, if anything has."""
    whole = message(b"x" * 50_000)
    receiver = await received(whole[: HEAD.size + received_bytes])

    if received_bytes:
        size = len(whole) - HEAD.size
        assert f"{received_bytes} of the {size} bytes of its value had arrived" in receiver.problem()
    else:
        assert "returned no value" in receiver.problem()
    receiver.discard()


@pytest.mark.parametrize("report", [b"{}", b'{"message": "x"}' * 100, b""])
async def test_a_report_is_no_value(report: bytes) -> None:
    """What comes in place of an error file is given as it is, and there is no value."""
    receiver = await received(HEAD.pack(REPORT, len(report)) + report)

    assert receiver.report == report
    assert receiver.problem() != ""
    assert "of its value had arrived" not in receiver.problem()
    receiver.discard()


async def test_a_cut_report_is_no_report() -> None:
    """Half of it is not given to anybody."""
    receiver = await received(HEAD.pack(REPORT, 100) + b"x" * 99)
    assert receiver.report == b""
    receiver.discard()


@pytest.mark.parametrize(
    "junk", [b"\0" * 9, b"\xff" * 100, b"GET / HTTP/1.1\r\n", b"X" + b"\x05" + b"\0" * 7 + b"12345"]
)
async def test_junk_is_no_value(junk: bytes) -> None:
    """Bytes of any other kind break nothing and are not unpickled."""
    receiver = await received(junk)

    assert receiver.problem() != ""
    assert receiver.report == b""
    receiver.discard()


@pytest.mark.parametrize("size", [2**48, 2**62, 2**63, 2**64 - 1])
async def test_a_size_beyond_all_memory_is_no_value(size: int) -> None:
    """It takes no memory and raises nothing; the problem names the size."""
    before = memory_now()
    receiver = await received(HEAD.pack(VALUE, size) + b"x" * 10_000)

    assert str(size) in receiver.problem()
    assert memory_now() - before < 10**7
    receiver.discard()


async def test_a_large_size_takes_memory_only_as_it_comes() -> None:
    """Of an announced gigabyte that does not come nothing is taken."""
    before = memory_now()
    receiver = await received(HEAD.pack(VALUE, 2**30) + b"x" * 10_000)

    assert f"10000 of the {2**30} bytes" in receiver.problem()
    assert memory_now() - before < 10**7
    receiver.discard()


@pytest.mark.parametrize("kind", [bytes, bytearray])
@pytest.mark.half
async def test_memory_is_given_back_while_the_value_is_made(kind: type) -> None:
    """A value of 60 MB is never in memory twice, and when it is dropped nothing of it is left."""
    size = 60 * 2**20
    head = message(kind(size))
    before = memory_now()
    async with receiving() as (receiver, writing):
        await write_in_thread(writing, [head])
        receiver.close()
        value = receiver.unpickle()
        assert memory_now() - before < size + 20 * 2**20
        assert len(value) == size
        del value
        gc.collect()
        assert memory_now() - before < 20 * 2**20


@pytest.mark.parametrize(
    "value", [b"x" * 10_000_000, list(range(300_000)), {"a": b"y" * 5_000_000, "b": "z" * 5_000_000}]
)
async def test_values_over_several_steps_are_whole(value: object) -> None:
    """Giving memory back on the way takes nothing away from what is still to be read."""
    async with receiving() as (receiver, writing):
        await write_in_thread(writing, [message([value, value, "end"])])
        receiver.close()
        assert receiver.unpickle() == [value, value, "end"]


@pytest.mark.parametrize("protocol", range(6))
async def test_every_protocol_is_read(protocol: int) -> None:
    """Pickles with lines in them, which only old protocols have, are read as well."""
    value = {"text": "a\nb", "number": 10**30, "bytes": b"\n"}
    data = pickle.dumps(value, protocol)
    receiver = await received(HEAD.pack(VALUE, len(data)) + data)
    assert receiver.unpickle() == value


async def test_what_unpickling_raises_is_raised_and_gives_the_memory_back() -> None:
    """A torn pickle raises; the message is gone afterwards."""
    data = pickle.dumps(["value"], 5)[:-3]
    receiver = await received(HEAD.pack(VALUE, len(data)) + data)

    assert receiver.problem() == ""
    with pytest.raises((EOFError, pickle.UnpicklingError)):
        receiver.unpickle()
    assert receiver._body is None


async def test_discarding_closes_the_pipe_at_once() -> None:
    """A rank that still sends gets a broken pipe; discarding twice does no harm."""
    async with receiving() as (receiver, writing):
        os.write(writing, message(b"x" * 10_000)[:5_000])
        receiver.discard()
        receiver.discard()
        with pytest.raises(BrokenPipeError):
            os.write(writing, b"more")
        os.close(writing)
