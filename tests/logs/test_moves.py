"""Moving bytes from a pipe into a file: each is in the one or in the other, whatever happens to the file."""

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from aioelastic._logs import moves
from aioelastic._logs.files import keep_appending, open_log
from aioelastic._logs.moves import Mover, Piece
from tests.helpers.supervisors import supervise


class Stream:
    """A pipe and a log file with something moving from the one to the other."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.reading, self.writing = os.pipe()
        os.set_blocking(self.reading, False)
        self.file = open_log(str(path))
        self.mover = Mover(self.reading, self.file, "the file")

    def move(self, data: bytes) -> Piece:
        """Write and move."""
        os.write(self.writing, data)
        return self.mover.move()

    def close(self) -> None:
        """Close all."""
        for descriptor in (self.reading, self.writing, self.file):
            os.close(descriptor)


@pytest.fixture(params=["spliced", "copied"])
def stream(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stream]:
    """Give a stream whose file has something in it already, for both ways."""
    (tmp_path / "log").write_bytes(b"older\n")
    if request.param == "copied":
        monkeypatch.setattr(moves, "stop_appending", keep_appending)
    stream = Stream(tmp_path / "log")
    yield stream
    stream.close()


def test_bytes_go_to_the_end_of_the_file(stream: Stream) -> None:
    """What is moved comes after what the file held, and is given back with its place."""
    assert stream.move(b"one\n") == Piece(b"one\n", 6, 4)
    assert stream.move(b"two\n") == Piece(b"two\n", 10, 4)
    assert stream.path.read_bytes() == b"older\none\ntwo\n"


def test_a_piece_is_split_with_all_it_says() -> None:
    """Both parts say where their bytes are, how many of them the file has, and what was lost or emptied."""
    piece = Piece(b"abcdef", 10, 4, 3, anew=True)

    assert piece.split(6) == (piece, None)
    assert piece.split(5) == (Piece(b"abcde", 10, 4, 0, anew=True), Piece(b"f", 15, 0, 3))
    assert piece.split(1) == (Piece(b"a", 10, 1, 0, anew=True), Piece(b"bcdef", 11, 3, 3))


def test_an_empty_pipe_and_the_end_differ(stream: Stream) -> None:
    """An empty pipe raises; one that nobody can write into any more gives nothing."""
    with pytest.raises(BlockingIOError):
        stream.mover.move()
    writing, stream.writing = stream.writing, os.dup(stream.reading)
    os.close(writing)

    assert stream.mover.move().is_end


def test_a_file_that_is_emptied_goes_on_at_its_end(stream: Stream) -> None:
    """After a copytruncate of logrotate's the file has no hole, and the move says that what was there is gone."""
    stream.move(b"one\n")
    os.truncate(stream.path, 0)
    with pytest.raises(BlockingIOError):
        stream.mover.move()

    assert stream.move(b"two\n") == Piece(b"two\n", 0, 4, anew=True)
    assert stream.move(b"three\n") == Piece(b"three\n", 4, 6)
    assert stream.path.read_bytes() == b"two\nthree\n"
    assert stream.mover.cuts == 1


def test_what_others_append_stays(stream: Stream) -> None:
    """A line that somebody else appended to the file is not written over."""
    stream.move(b"one\n")
    with stream.path.open("ab") as others:
        others.write(b"a remark\n")

    assert stream.move(b"two\n").place == 19
    assert stream.path.read_bytes() == b"older\none\na remark\ntwo\n"


def test_a_file_that_no_longer_takes_splices_is_written(tmp_path: Path) -> None:
    """A refusal in the middle loses and doubles nothing: the same bytes are read and written, and so are the next."""
    stream = Stream(tmp_path / "log")
    stream.move(b"one\n")
    keep_appending(stream.file)  # this is what the kernel refuses

    assert stream.move(b"two\n") == Piece(b"two\n", 4, 4)
    assert stream.move(b"three\n") == Piece(b"three\n", 8, 6)
    assert stream.path.read_bytes() == b"one\ntwo\nthree\n"
    assert stream.mover.failure is None
    stream.close()


def test_bytes_that_are_cut_off_at_once_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is gone from the file before it could be read back is no end of the stream, and counts as lost."""
    stream = Stream(tmp_path / "log")
    real = os.splice

    def and_cut(*args: int, **kwargs: int) -> int:
        count = real(*args, **kwargs)
        os.truncate(stream.path, 2)
        return count

    monkeypatch.setattr(os, "splice", and_cut)
    assert stream.move(b"one\n") == Piece(b"on", 0, 2, lost=2)
    monkeypatch.undo()

    assert stream.move(b"two\n") == Piece(b"two\n", 2, 4, anew=True)
    stream.close()


@pytest.mark.parametrize("number", [errno.EIO, errno.ENOSPC, errno.EDQUOT])
def test_a_file_that_fails_is_left_alone(stream: Stream, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    """After a failure all bytes still come from the pipe, the file has what it has, and the rest is counted."""

    def fail(*args: object, **kwargs: object) -> int:
        raise OSError(number, os.strerror(number))

    stream.move(b"one\n")
    monkeypatch.setattr(os, "splice", fail)
    monkeypatch.setattr(os, "writev", fail)

    assert stream.move(b"two\n") == Piece(b"two\n", 10, 0)
    monkeypatch.undo()
    assert stream.move(b"three\n") == Piece(b"three\n")
    assert stream.path.read_bytes() == b"older\none\n"
    assert stream.mover.missed == 10
    assert stream.mover.failure is not None
    assert stream.mover.failure.errno == number


def test_a_file_at_its_limit_takes_what_it_can(tmp_path: Path) -> None:
    """A file that is full in the middle of a move has all up to there, and each byte is in it or counted."""
    body = f"""
        from aioelastic._logs import files, moves
        reading, writing = os.pipe()
        os.set_blocking(reading, False)
        mover = moves.Mover(reading, files.open_log("{tmp_path}/log"), "the file")
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, resource.RLIM_INFINITY))
        pieces = []
        for _ in range(4):
            os.write(writing, b"0123456789" * 4_000)
            pieces.append(mover.move())
        print([len(piece.data) for piece in pieces], [piece.kept for piece in pieces], mover.missed, mover.failure)
    """
    done = supervise(body)

    assert done.stdout.decode() == (
        "[40000, 40000, 20000, 60000] [40000, 40000, 20000, 0] 60000 [Errno 27] File too large\n"
    ), done.stderr
    assert (tmp_path / "log").read_bytes() == b"0123456789" * 10_000
