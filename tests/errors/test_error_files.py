"""The error file on disk: how it gets there and what can be read from it."""

import errno
import json
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._errors.error_files import (
    READ_LIMIT,
    TEXT_LIMIT,
    parse_error_file,
    read_error_file,
    shortened,
    write_first,
    write_over,
)

FIRST = {"message": "first", "timestamp": 10}
SECOND = {"message": "second", "timestamp": 11}


def refuse_links(source: str, target: str) -> None:
    """Stand for ``os.link`` on a file system without hard links."""
    raise OSError(errno.EPERM, "Operation not permitted")


def test_the_first_writer_wins(error_path: Path) -> None:
    """A record does not take the place of an earlier one, and leaves nothing else in the folder."""
    written = [write_first(str(error_path), FIRST), write_first(str(error_path), SECOND)]

    assert written == [True, False]
    assert json.loads(error_path.read_text()) == FIRST
    assert [error_path] == list(error_path.parent.iterdir())


def test_the_first_writer_wins_without_hard_links(error_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the file system has no hard links, the first writer wins all the same."""
    monkeypatch.setattr(os, "link", refuse_links)

    written = [write_first(str(error_path), FIRST), write_first(str(error_path), SECOND)]

    assert written == [True, False]
    assert json.loads(error_path.read_text()) == FIRST
    assert [error_path] == list(error_path.parent.iterdir())


def test_other_link_errors_are_raised(error_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A link that fails for another reason is an error, and the temporary file is gone."""

    def fail(source: str, target: str) -> None:
        raise OSError(errno.EDQUOT, "Quota exceeded")

    monkeypatch.setattr(os, "link", fail)

    with pytest.raises(OSError, match="Quota"):
        write_first(str(error_path), FIRST)
    assert list(error_path.parent.iterdir()) == []


def test_an_empty_file_counts_as_none(error_path: Path) -> None:
    """A file that only reserved the name is replaced by the first record."""
    error_path.touch()

    assert write_first(str(error_path), FIRST)
    assert json.loads(error_path.read_text()) == FIRST


def test_a_file_is_private_whatever_the_umask(error_path: Path) -> None:
    """An error file may hold secrets of the program: only its owner reads it."""
    before = os.umask(0)
    try:
        write_first(str(error_path), FIRST)
    finally:
        os.umask(before)

    assert stat.S_IMODE(error_path.stat().st_mode) == 0o600


def test_write_over_replaces(error_path: Path) -> None:
    """The later file takes the place of the earlier one and leaves nothing else."""
    write_first(str(error_path), FIRST)
    write_over(str(error_path), SECOND)

    assert json.loads(error_path.read_text()) == SECOND
    assert [error_path] == list(error_path.parent.iterdir())


@pytest.mark.parametrize("write", [write_first, write_over])
def test_nothing_is_written_through_a_symlink(error_path: Path, write: Callable[..., object]) -> None:
    """The target of a link that somebody put in the file's place stays as it is."""
    target = error_path.with_name("precious")
    target.write_text("precious")
    error_path.symlink_to(target)

    write(str(error_path), FIRST)

    assert target.read_text() == "precious"


def test_a_missing_folder_is_an_error(tmp_path: Path) -> None:
    """The writer learns that the folder is gone."""
    with pytest.raises(FileNotFoundError):
        write_first(str(tmp_path / "gone" / "error.json"), FIRST)


def test_write_over_a_folder_is_an_error(error_path: Path) -> None:
    """A folder in the file's place is refused, and the temporary file is gone."""
    error_path.mkdir()

    with pytest.raises(OSError, match="directory"):
        write_over(str(error_path), FIRST)
    assert [error_path] == list(error_path.parent.iterdir())


def test_long_texts_keep_head_and_tail(error_path: Path) -> None:
    """A huge text is cut in the middle, and the file can be read even where JSON needs 12 bytes a letter."""
    huge = "head" + "\U0001f525" * (3 * TEXT_LIMIT) + "tail"
    write_first(str(error_path), {"message": {"message": huge, "extraInfo": {"py_callstack": huge}}})

    found = read_error_file(str(error_path))

    assert found is not None
    assert found.problem == ""
    assert found.message.startswith("head")
    assert found.message.endswith("tail")
    assert "characters left out" in found.traceback
    assert error_path.stat().st_size < READ_LIMIT


def test_short_texts_stay() -> None:
    """A text within the limit is given back as it is."""
    assert shortened("abcd", 4) == "abcd"


def test_the_nested_form_is_read() -> None:
    """What PyTorch's own record writes gives message, traceback and whole seconds."""
    found = parse_error_file(
        b'{"message": {"message": "ValueError: x", "extraInfo": '
        b'{"py_callstack": "Traceback", "timestamp": "1700000000"}}}'
    )

    assert found[1:] == ("ValueError: x", "Traceback", 1700000000.0, False, "")


def test_the_flat_form_is_read() -> None:
    """The other form that PyTorch reads gives message and time."""
    found = parse_error_file(b'{"message": "lost", "timestamp": 10}')

    assert tuple(found) == ({"message": "lost", "timestamp": 10}, "lost", "", 10.0, False, "")


def test_the_finer_time_is_preferred() -> None:
    """Nanoseconds in their own field give a time finer than seconds."""
    found = parse_error_file(
        b'{"message": {"message": "x", "extraInfo": '
        b'{"timestamp": "1700000000", "timestamp_ns": "1700000000250000000"}}}'
    )

    assert (found.timestamp, found.subsecond) == (1700000000.25, True)


@pytest.mark.parametrize("finer", ['"' + "9" * 30 + '"', '"' + "9" * 50 + '"', '"-1"', '"soon"', "1.5"])
def test_a_nonsensical_finer_time_leaves_the_seconds(finer: str) -> None:
    """Where the finer time cannot be, the whole seconds hold."""
    found = parse_error_file(f'{{"message": "x", "timestamp": 10, "timestamp_ns": {finer}}}'.encode())

    assert (found.timestamp, found.subsecond) == (10.0, False)


@pytest.mark.parametrize(
    "value", ["null", "true", '"soon"', "NaN", "-1", "1e300", "[1]", '"' + "1" * 50 + '"', "1" * 400]
)
def test_a_nonsensical_time_is_no_time(value: str) -> None:
    """A time that no clock shows is as good as none, and the message is read all the same."""
    found = parse_error_file(f'{{"message": "x", "timestamp": {value}}}'.encode())

    assert (found.message, found.timestamp) == ("x", None)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "is empty"),
        (b" \n", "is empty"),
        (b'{"message": {"message": "Val', "is torn or no JSON"),
        (b"[1]", "holds a list"),
        (b"{}", "has no message"),
        (b'{"message": 3}', "has a message that is no text but int"),
        (b'{"message": " "}', "has an empty message"),
        (b'{"message": {"extraInfo": {}}}', "has no message"),
        (b'{"message": {"message": ["x"], "extraInfo": 3}}', "has a message that is no text but list"),
        (b"[" * 1_000_000, "is nested too deeply"),
        (b'{"message": ' + b"[" * 500 + b"]" * 500 + b"}", "is nested too deeply"),
        (b'{"message": "x", "n": ' + b"1" * 10_000 + b"}", "is torn or no JSON"),
    ],
    ids=lambda value: repr(value[:20]),
)
def test_a_faulty_file_says_what_is_wrong(content: bytes, problem: str) -> None:
    """Each fault is told in words, and never raised."""
    found = parse_error_file(content)

    assert found.problem.startswith(problem)
    assert found.message == ""


def test_a_torn_file_shows_its_beginning() -> None:
    """The part of a torn file that has the message is shown."""
    assert "Val" in parse_error_file(b'{"message": {"message": "Val').problem


def test_bytes_that_are_no_utf8_are_replaced() -> None:
    """A message in another encoding is read as far as it goes."""
    assert parse_error_file(b'{"message": "caf\xe9"}').message == "caf\ufffd"


def test_lone_surrogates_can_be_printed() -> None:
    """A half character, which JSON can hold, comes out as text that every stream takes."""
    assert parse_error_file(b'{"message": "\\ud800"}').message == "\\ud800"


def test_a_missing_file_is_none(tmp_path: Path) -> None:
    """No file, no folder and no path all mean that there is no error file."""
    plain = tmp_path / "plain"
    plain.touch()

    paths = [str(tmp_path / "none"), str(tmp_path / "no" / "none"), str(plain / "none"), "", "<N/A>"]

    assert [read_error_file(path) for path in paths] == [None] * 5


def descriptors() -> int:
    """Count the open descriptors of this process."""
    return len(list(Path("/dev/fd").iterdir()))


@pytest.mark.parametrize(
    "make",
    [
        Path.mkdir,
        os.mkfifo,
        lambda path: path.symlink_to("/etc/hostname"),
        lambda path: path.symlink_to(path),
    ],
    ids=["folder", "fifo", "link", "loop"],
)
def test_what_is_no_file_is_not_read(error_path: Path, make: Callable[[Path], object]) -> None:
    """A folder, a pipe nobody writes to, or a link is told and never waited for; no descriptor leaks."""
    make(error_path)
    before = descriptors()

    found = read_error_file(str(error_path))

    assert found is not None
    assert found.problem.startswith("could not be read (")
    assert descriptors() == before


def test_a_path_that_is_none_is_told() -> None:
    """A NUL in the path is a problem in words."""
    found = read_error_file("a\0b")

    assert found is not None
    assert found.problem.startswith("could not be read (")
    assert "embedded null" in found.problem


def test_a_huge_file_is_told(error_path: Path) -> None:
    """A file over the limit is not read to its end, and how it begins is shown."""
    error_path.write_bytes(b'{"message": "start')
    os.truncate(error_path, 10 * READ_LIMIT)

    found = read_error_file(str(error_path))

    assert found is not None
    assert found.problem.startswith("is larger than 16 MiB; it begins with")
    assert "start" in found.problem


@given(st.binary(max_size=300))
def test_any_bytes_can_be_parsed(content: bytes) -> None:
    """Whatever the bytes are, there is a message or a problem."""
    found = parse_error_file(content)

    assert found.message or found.problem
