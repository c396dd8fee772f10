"""What is known about a failed rank."""

import copy
import json
import os
import pickle
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioelastic._errors.log_tail import TAIL_BYTES, TAIL_LINES, log_tail, printable
from aioelastic._errors.process_failure import ProcessFailure

json_values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(st.characters()),
    lambda inner: st.lists(inner) | st.dictionaries(st.sampled_from(["message", "extraInfo", "timestamp", "x"]), inner),
)


def fail(error_file: str | Path = "", exitcode: int | None = 1, **options: Any) -> ProcessFailure:
    """Give the failure of rank 3."""
    return ProcessFailure(3, 123, exitcode, str(error_file), **options)


def test_the_form_written_by_pytorch_is_read(error_path: Path) -> None:
    """A file from torch's own record gives data, message, traceback and time."""
    data = {
        "message": {
            "message": "ValueError: x",
            "extraInfo": {"py_callstack": "Traceback ...", "timestamp": "1700000000"},
        }
    }
    error_path.write_text(json.dumps(data))

    failure = fail(error_path)

    assert data == failure.error_file_data
    assert str(error_path) == failure.error_file
    assert (
        failure.message,
        failure.traceback,
        failure.timestamp,
    ) == ("ValueError: x", "Traceback ...", 1700000000.0)


def test_the_flat_form_is_read(error_path: Path) -> None:
    """The flat form gives message and time and has no traceback."""
    error_path.write_text('{"message": "test message", "timestamp": 10}')

    failure = fail(error_path)

    assert (failure.message, failure.traceback, failure.timestamp) == ("test message", "", 10)
    assert failure.signal_name() == "<N/A>"


def test_a_signal_without_an_error_file() -> None:
    """A rank that was killed has no file, and the message names signal and process."""
    failure = fail(exitcode=-9)

    assert failure.message == "Signal 9 (SIGKILL) received by PID 123"
    assert failure.signal_name() == "SIGKILL"
    assert failure.error_file == "<N/A>"
    assert failure.error_file_data == {"message": "<NONE>"}
    assert abs(time.time() - failure.timestamp) < 60


def test_a_signal_is_followed_by_the_log(tmp_path: Path) -> None:
    """The sentence on the signal comes first, the end of stderr after it."""
    log = tmp_path / "stderr.log"
    log.write_text("out of memory\n")

    failure = fail(exitcode=-9, stderr_file=str(log))

    assert [
        "Signal 9 (SIGKILL) received by PID 123",
        f"The last lines of {log}:",
        "out of memory",
    ] == failure.message.split("\n")


def test_an_exit_code_is_followed_by_the_log(tmp_path: Path) -> None:
    """A plain script that raises shows its last lines."""
    log = tmp_path / "stderr.log"
    log.write_text("Traceback (most recent call last):\nValueError: undecorated\n")

    message = fail(stderr_file=str(log)).message

    assert message.startswith("PID 123 ended with exit code 1.\n")
    assert message.endswith("\nValueError: undecorated")


@pytest.mark.parametrize("stderr_file", ["", "/no/such/stderr.log", os.devnull, "/", "a\0b"])
def test_without_anything_the_message_helps(stderr_file: str) -> None:
    """With neither file nor log the message says how to get a traceback."""
    message = fail(stderr_file=stderr_file).message

    assert message.startswith("PID 123 ended with exit code 1.\n")
    assert "aioelastic.record" in message
    assert "tee" in message


def test_an_unknown_status_is_said() -> None:
    """No status is invented where another part of the program took it."""
    failure = fail(exitcode=None)

    assert failure.message.startswith("The exit status of PID 123 was taken by another part of the program")
    assert failure.signal_name() == "<N/A>"


def test_a_reason_is_said() -> None:
    """What the supervisor knows stands in place of the exit code and of advice, and after a signal."""
    assert fail(exitcode=0, reason="no value came back").message == "no value came back"
    assert fail(exitcode=-11, reason="no value came back").message.split("\n") == [
        "Signal 11 (SIGSEGV) received by PID 123",
        "no value came back",
    ]


def test_a_torn_file_is_told_and_the_log_shown(error_path: Path, tmp_path: Path) -> None:
    """A file that cannot be used is named with its fault, then comes what there is otherwise."""
    error_path.write_text('{"message": {"mess')
    log = tmp_path / "stderr.log"
    log.write_text("last words\n")

    failure = fail(error_path, stderr_file=str(log))

    assert f"The error file {error_path} is torn or no JSON" in failure.message
    assert failure.message.endswith("last words")
    assert str(error_path) == failure.error_file
    assert failure.error_file_data == {"message": "<NONE>"}


def test_a_deep_file_does_not_break_pickle(error_path: Path) -> None:
    """Nesting that a JSON parser takes but pickle does not is left out."""
    error_path.write_text('{"message": "x", "a": ' + "[" * 900 + "]" * 900 + "}")

    failure = fail(error_path)

    assert "nested too deeply" in failure.message
    assert failure == pickle.loads(pickle.dumps(failure))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=60)
@given(st.binary(max_size=500) | json_values.map(lambda value: json.dumps(value).encode()))
def test_any_error_file_gives_a_failure(error_path: Path, content: bytes) -> None:
    """Whatever bytes an error file has, the failure has a printable text, a time, and travels."""
    error_path.write_bytes(content)

    failure = fail(error_path)

    assert failure.message
    failure.message.encode()
    failure.traceback.encode()
    failure.timestamp_isoformat()
    assert "message" in failure.error_file_data
    assert repr(failure) == repr(pickle.loads(pickle.dumps(failure)))


def test_unpickling_reads_no_file(error_path: Path) -> None:
    """A failure arrives as it was sent, though its files are gone by then."""
    error_path.write_text('{"message": "x", "timestamp": 10}')
    failure = fail(error_path)
    sent = [pickle.dumps(failure, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    error_path.unlink()

    assert all(failure == pickle.loads(each) for each in sent)
    assert failure == copy.deepcopy(failure)


def test_the_exit_time_is_used_where_the_file_has_none(error_path: Path) -> None:
    """The supervisor's time stands in for one that nobody recorded."""
    error_path.write_text('{"message": "x"}')

    assert fail(error_path, exited_at=50.5).timestamp == 50.5
    assert fail(exited_at=50.5).timestamp == 50.5


@pytest.mark.parametrize(("exited_at", "timestamp"), [(10.7, 10.7), (11.2, 10.0), (9.9, 9.9)])
def test_whole_seconds_are_refined_by_the_exit_time(error_path: Path, exited_at: float, timestamp: float) -> None:
    """A time rounded down to a second does not make a late failure the first one."""
    error_path.write_text('{"message": "x", "timestamp": 10}')

    assert timestamp == fail(error_path, exited_at=exited_at).timestamp


def test_a_time_outside_of_the_ranks_life_is_not_believed(error_path: Path) -> None:
    """A record from before the start, or from after the exit, does not decide which failure came first."""
    error_path.write_text('{"message": "x", "timestamp": 10}')

    assert fail(error_path, started_at=1000.5, exited_at=1007.25).timestamp == 1007.25
    assert fail(error_path, started_at=10.5, exited_at=12.0).timestamp == 10.0


def test_the_time_is_written_as_pytorch_does(error_path: Path) -> None:
    """Date and time are joined by an underscore, in local time."""
    error_path.write_text('{"message": "x", "timestamp": 1700000000}')

    assert time.strftime("%Y-%m-%d_%H:%M:%S", time.localtime(1700000000)) == fail(error_path).timestamp_isoformat()


def test_the_tail_of_a_log_is_bounded(tmp_path: Path) -> None:
    """Of a long log only the last whole lines are shown."""
    log = tmp_path / "stderr.log"
    log.write_text("".join(f"line {number} {'x' * 500}\n" for number in range(100)))

    lines = log_tail(str(log)).split("\n")

    assert lines[0][:7] == "line 92"
    assert lines[-1][:7] == "line 99"


def test_the_tail_of_a_log_has_few_lines(tmp_path: Path) -> None:
    """Of many short lines only the last ones are shown."""
    log = tmp_path / "stderr.log"
    log.write_text("\n".join(map(str, range(100))))

    assert list(map(str, range(100 - TAIL_LINES, 100))) == log_tail(str(log)).split("\n")


def test_one_huge_line_keeps_its_end(tmp_path: Path) -> None:
    """A log that is one line without an end is shown from a whole character on."""
    log = tmp_path / "stderr.log"
    log.write_text("\u20ac" * TAIL_BYTES + "!")

    tail = log_tail(str(log))

    assert {"\u20ac", "!"} == set(tail)
    assert tail.endswith("!")


def test_a_log_of_any_bytes_is_shown(tmp_path: Path) -> None:
    """Undecodable bytes are replaced, and what would act on a terminal is left out."""
    log = tmp_path / "stderr.log"
    log.write_bytes(b"\x00caf\xe9 \x1b[31mred\x1b[0m \x1b]0;title\x07\x9b\r\n10%\r99%\nend\x1b]open")

    assert log_tail(str(log)) == "caf\ufffd red \ufffd\n99%\nendopen"


@given(st.text(st.characters()))
def test_any_text_becomes_printable(text: str) -> None:
    """No control character and no half character is left."""
    assert all(letter in "\t\n" or ord(letter) >= 32 for letter in printable(text))
    printable(text).encode()
