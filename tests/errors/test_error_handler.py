"""What a rank does about an exception that nobody caught."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from aioelastic._errors.error_handler import ErrorHandler, exception_data, get_error_handler


@pytest.fixture
def handler(error_path: Path, monkeypatch: pytest.MonkeyPatch) -> ErrorHandler:
    """A handler whose process has an error file."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(error_path))
    return get_error_handler()


def caught(error: BaseException) -> BaseException:
    """Give the exception a traceback."""
    with pytest.raises(type(error)) as caught_info:
        raise error
    return caught_info.value


def callstack(error: BaseException) -> str:
    """Give the traceback that is recorded."""
    text = exception_data(caught(error))["message"]["extraInfo"]["py_callstack"]
    assert isinstance(text, str)
    return text


class UnspeakableError(Exception):
    """Its text cannot be had."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


class HostileError(Exception):
    """Even its notes cannot be had."""

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise RuntimeError("no notes")

    @property
    def __cause__(self) -> None:  # type: ignore[override]
        raise RuntimeError("no cause")


def test_an_exception_is_recorded_in_pytorchs_format(handler: ErrorHandler, error_path: Path) -> None:
    """The fields that PyTorch's tools read are there, and the finer time agrees with the whole seconds."""
    handler.record_exception(caught(ValueError("x")))

    data = json.loads(error_path.read_text())
    extra = data["message"]["extraInfo"]

    assert data["message"]["message"] == "ValueError: x"
    assert extra["py_callstack"].startswith("Traceback (most recent call last):\n")
    assert extra["timestamp"] == extra["timestamp_ns"][:-9]
    assert {"py_callstack", "timestamp", "timestamp_ns"} == set(extra)


def test_the_first_exception_stays(handler: ErrorHandler, error_path: Path) -> None:
    """A later exception does not hide the earlier one."""
    handler.record_exception(ValueError("cause"))
    handler.record_exception(ValueError("consequence"))

    assert json.loads(error_path.read_text())["message"]["message"] == "ValueError: cause"


def test_an_exception_without_text_is_its_type() -> None:
    """The name of the type is the whole message."""
    assert exception_data(KeyboardInterrupt())["message"]["message"] == "KeyboardInterrupt"


def test_an_exception_whose_text_fails_is_recorded() -> None:
    """A broken ``__str__`` is told in place of the text."""
    data = exception_data(caught(UnspeakableError()))

    assert data["message"]["message"] == "UnspeakableError: <its str() failed with RuntimeError>"
    assert "in caught" in data["message"]["extraInfo"]["py_callstack"]


def test_a_hostile_exception_is_recorded() -> None:
    """Attributes that raise when read do not hide where it happened."""
    stack = callstack(HostileError("x"))

    assert "in caught" in stack
    assert "HostileError" in stack


def test_groups_causes_contexts_and_notes_are_recorded() -> None:
    """All that hangs on an exception is in the traceback, the last member of a wide group too."""
    members = [ValueError(f"member {number}") for number in range(30)]
    members[29].__cause__ = KeyError("the cause")
    members[28].__context__ = KeyError("the context")
    group = ExceptionGroup("wide", members)
    group.add_note("a note")

    stack = callstack(group)

    assert all(text in stack for text in ("member 0", "member 29", "the cause", "the context", "a note"))


@pytest.mark.parametrize("folder", ["missing", "read-only"])
def test_a_file_that_cannot_be_written_is_logged(
    tmp_path: Path, folder: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The folder is gone: the caller hears nothing, the log does."""
    path = tmp_path / folder / "error.json"
    if folder == "read-only":
        path.parent.write_text("a file")
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(path))

    get_error_handler().record_exception(ValueError("x"))

    assert [entry[:2] for entry in caplog.record_tuples] == [("aioelastic", logging.WARNING)]
    assert f"could not record ValueError in {path}" in caplog.text


def test_without_a_path_nothing_is_written(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A program run by hand has no supervisor, which is worth no warning."""
    monkeypatch.delenv("TORCHELASTIC_ERROR_FILE", raising=False)
    handler = get_error_handler()

    handler.record_exception(ValueError("x"))

    assert not handler.dump_error_file("/no/such/error.json")
    assert caplog.record_tuples == []


def test_a_log_handler_that_fails_breaks_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a user's logging can take the place of the user's exception."""

    class Refuse(logging.Filter):
        def filter(self, record: logging.LogRecord) -> bool:
            raise RuntimeError(record.name)

    refuse = Refuse()
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "missing" / "error.json"))
    logging.getLogger("aioelastic").addFilter(refuse)
    try:
        get_error_handler().record_exception(ValueError("x"))
    finally:
        logging.getLogger("aioelastic").removeFilter(refuse)


def test_a_root_cause_is_passed_on(handler: ErrorHandler, error_path: Path, tmp_path: Path) -> None:
    """The rank's file takes the place of ours, with the exit code that the rank could not know."""
    child = tmp_path / "child.json"
    child.write_text('{"message": {"message": "lost", "extraInfo": {}, "more": 1}}')
    error_path.write_text("ours")

    assert handler.dump_error_file(str(child), -11)
    assert json.loads(error_path.read_text()) == {
        "message": {"message": "lost", "extraInfo": {}, "more": 1, "errorCode": -11}
    }


def test_a_file_passed_on_to_itself_stays(handler: ErrorHandler, error_path: Path) -> None:
    """A rank that inherited its parent's path wrote the parent's file already."""
    error_path.write_text('{"message": "lost"}')

    assert handler.dump_error_file(str(error_path))
    assert json.loads(error_path.read_text()) == {"message": "lost"}


def test_a_plain_message_has_no_place_for_a_code(handler: ErrorHandler, caplog: pytest.LogCaptureFixture) -> None:
    """The flat form stays as it is, and the log says so."""
    data: dict[str, Any] = {"message": "flat"}

    handler.override_error_code_in_rootcause_data("error.json", data, 3)

    assert data == {"message": "flat"}
    assert "no place for exit code 3" in caplog.text


@pytest.mark.parametrize("content", [None, b"torn {"])
def test_a_root_cause_that_cannot_be_read_is_logged(
    handler: ErrorHandler,
    error_path: Path,
    tmp_path: Path,
    content: bytes | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A torn or missing file is not passed on."""
    child = tmp_path / "child.json"
    if content is not None:
        child.write_bytes(content)

    assert not handler.dump_error_file(str(child))
    assert not error_path.exists()
    assert f"cannot pass on the error file {child}" in caplog.text


def test_a_root_cause_that_cannot_be_written_is_logged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Our own folder is gone: the log says so and nothing is raised."""
    child = tmp_path / "child.json"
    child.write_text('{"message": "lost"}')
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(tmp_path / "missing" / "error.json"))

    assert not get_error_handler().dump_error_file(str(child))
    assert "could not pass on" in caplog.text


PROGRAM = """
import faulthandler, io, os, sys
class Silent:
    def flush(self): pass
{before}
from aioelastic._errors.error_handler import get_error_handler
get_error_handler().initialize()
print(faulthandler.is_enabled())
"""


@pytest.mark.parametrize(
    ("before", "enabled"),
    [
        ("", "True"),
        ("sys.stderr = io.StringIO()", "True"),
        ("sys.stderr = Silent()", "True"),
        ("sys.stderr = None", "True"),
        ("sys.stderr = sys.__stderr__ = None", "False"),
    ],
)
def test_faulthandler_is_on_whatever_stderr_is(run_rank: Any, before: str, enabled: str) -> None:
    """A stand-in for stderr never breaks a program, and the real one is used where there is one."""
    done = run_rank(PROGRAM.format(before=before))

    assert (0, enabled) == (done.returncode, done.stdout.strip())


def test_a_crash_shows_its_stack(run_rank: Any) -> None:
    """A segmentation fault in C code tells the Python line on stderr."""
    done = run_rank(PROGRAM.format(before="") + "faulthandler._sigsegv()")

    assert done.returncode == -11
    assert "Fatal Python error: Segmentation fault" in done.stderr
