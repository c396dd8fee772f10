"""The exception for a person who wants to know what happened."""

import copy
import json
import pickle
from pathlib import Path

import pytest

from aioelastic._errors.child_failed import ChildFailedError
from aioelastic._errors.exceptions import AioelasticError, SpecificationError
from aioelastic._errors.process_failure import ProcessFailure
from aioelastic._errors.report import OTHERS_IN_FULL, ROOT_TEXT_LIMIT, rank_ranges


def killed(rank: int, exited_at: float = 100.0) -> ProcessFailure:
    """Give the failure of a killed rank."""
    return ProcessFailure(rank, 1000 + rank, -9, "", exited_at=exited_at)


def raised(rank: int, path: Path, *, seconds: int, text: str = "ValueError: x") -> ProcessFailure:
    """Give the failure of a rank that raised."""
    extra = {"py_callstack": f"Traceback (most recent call last):\n{text}\n", "timestamp": str(seconds)}
    path.write_text(json.dumps({"message": {"message": text, "extraInfo": extra}}))
    return ProcessFailure(rank, 1000 + rank, 1, str(path))


def test_the_earliest_failure_is_the_first() -> None:
    """By hand the failures may come in any order: time decides which was first."""
    error = ChildFailedError("trainer", {0: killed(0, 102.0), 1: killed(1, 101.0), 2: killed(2, 103.0)})

    assert (1, killed(1, 101.0)) == error.get_first_failure()
    assert list(error.failures) == [1, 0, 2]


def test_failures_of_the_same_time_stay_in_the_order_given() -> None:
    """The supervisor's order decides where the clock does not."""
    assert list(ChildFailedError("trainer", {2: killed(2), 0: killed(0), 1: killed(1)}).failures) == [2, 0, 1]


def test_the_report_reads_from_the_cause_on(tmp_path: Path) -> None:
    """Headline, root cause with its traceback, the other failure, and one line for the stopped ranks."""
    path = tmp_path / "error.json"
    error = ChildFailedError("trainer", {0: killed(0, 101.25), 1: raised(1, path, seconds=100)}, stopped=[5, 2, 3])
    cause = error.failures[1]

    assert [
        f"trainer failed on {error.host}: 2 ranks failed, first rank 1",
        "",
        "Root cause: rank 1 (pid 1001)",
        f"  time      : {cause.timestamp_isoformat()}",
        f"  host      : {error.host}",
        "  exit code : 1",
        f"  error file: {path}",
        "  traceback :",
        "    Traceback (most recent call last):",
        "    ValueError: x",
        "",
        "Other failure: rank 0 (pid 1000)",
        f"  time      : {error.failures[0].timestamp_isoformat()}",
        f"  host      : {error.host}",
        "  exit code : -9 (SIGKILL)",
        "  error file: <N/A>",
        "  message   :",
        "    Signal 9 (SIGKILL) received by PID 1000",
        "",
        "Stopped because of that: 3 ranks (2-3, 5)",
    ] == str(error).split("\n")


def test_one_failure_makes_a_short_report() -> None:
    """Without other failures and stopped ranks nothing is said about them."""
    report = str(ChildFailedError("trainer", {0: killed(0)}))

    assert "1 rank failed, first rank 0" in report
    assert "Other" not in report
    assert "Stopped" not in report


def test_a_thousand_failures_stay_readable(tmp_path: Path) -> None:
    """Beyond the first few, a failure gets one line."""
    error = ChildFailedError("trainer", {rank: killed(rank, 100.0 + rank) for rank in range(1000)})

    assert str(error).count("Other failure:") == OTHERS_IN_FULL
    assert "  rank 999 (pid 1999): exit code -9 (SIGKILL): Signal 9 (SIGKILL) received by PID 1999" in str(error)
    assert len(str(error)) < 200_000


def test_a_long_traceback_keeps_its_ends(tmp_path: Path) -> None:
    """The report shows head and tail of a traceback of any length."""
    path = tmp_path / "error.json"
    error = ChildFailedError("trainer", {0: raised(0, path, seconds=1, text="x" * 300_000 + "END")})

    assert len(str(error)) < 2 * ROOT_TEXT_LIMIT
    assert "END" in str(error)


def test_a_report_is_safe_to_print(tmp_path: Path) -> None:
    """A message cannot act on the terminal of whoever reads the report."""
    path = tmp_path / "error.json"
    error = ChildFailedError("trainer", {0: raised(0, path, seconds=1, text="a\x1b[2Jb\ud800")})

    assert "\x1b" not in str(error)
    str(error).encode()


def test_ranks_of_the_world_name_their_local_rank() -> None:
    """Failures by global rank say which local rank each was."""
    assert "rank 11 (local rank 3, pid 1003)" in str(ChildFailedError("trainer", {11: killed(3)}))


def test_an_unknown_status_is_called_so() -> None:
    """A rank whose status was taken has no exit code in the report."""
    failure = ProcessFailure(0, 1000, None, "", exited_at=1.0)

    assert "exit code : unknown" in str(ChildFailedError("trainer", {0: failure}))


def test_it_travels_by_pickle() -> None:
    """Name, failures, stopped ranks, host, text and notes arrive, though the host is another."""
    error = ChildFailedError("trainer", {0: killed(0)}, stopped=[1])
    error.host = "elsewhere"
    error.add_note("while loading")

    for sent in [*(pickle.dumps(error, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1))]:
        arrived = pickle.loads(sent)

        assert type(error) is type(arrived)
        assert str(error) == str(arrived)
        assert vars(error) == vars(arrived)
    assert vars(error) == vars(copy.copy(error))


def test_no_failures_are_refused() -> None:
    """An exception that says ranks failed needs a rank that did."""
    with pytest.raises(SpecificationError, match="at least one failure"):
        ChildFailedError("trainer", {})


def test_it_is_one_of_ours() -> None:
    """It is caught with the library's other exceptions."""
    assert issubclass(ChildFailedError, AioelasticError)


@pytest.mark.parametrize(("ranks", "text"), [([], ""), ([4], "4"), ([0, 1, 2, 5, 7, 8], "0-2, 5, 7-8")])
def test_ranks_are_written_as_ranges(ranks: list[int], text: str) -> None:
    """Neighbours are joined."""
    assert text == rank_ranges(ranks)
