"""The command of benchmarks/: it measures, holds goals against medians, and shows it all."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.helpers.drivers import ROOT

if TYPE_CHECKING:
    from measuring.rows import Results

BENCHMARKS: Final = ROOT / "benchmarks"


@pytest.fixture(autouse=True)
def _measuring_is_found(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] in {"measuring", "figures"}]:
        del sys.modules[name]


@pytest.fixture
def results_of() -> "Callable[[list[float], list[float]], Results]":
    """Give what makes results: rounds of aioelastic and of plain asyncio, with goals of 10, and of twice the other."""
    from measuring.plan import AIOELASTIC, ASYNCIO, Case, Figure, at_most, times  # noqa: PLC0415 - it is found only now
    from measuring.rows import Results, Section, rows_of  # noqa: PLC0415 - see above

    figures = (
        Figure(key="delay", name="delay", unit="ms", goal=at_most(10, "1 rank")),
        Figure(key="speed", name="speed", unit="MB/s", more_is_better=True, goal=times(2, ASYNCIO)),
    )

    def results(ours: list[float], theirs: list[float]) -> Results:
        cases = [Case(subject=AIOELASTIC, label="1 rank"), Case(subject=ASYNCIO, label="1 rank")]
        rounds = [[{"delay": each, "speed": each} for each in ours], [{"speed": each} for each in theirs]]
        section = Section(name="some", title="Some", rows=rows_of(figures, cases, rounds), charts=[], faults=[])
        return Results(machine={"Python": "3.11"}, sections=[section])

    return results


def test_one_figure_is_measured_and_shown(tmp_path: Path) -> None:
    """``python -m benchmarks NAME`` gives progress, a table and JSON, which can be shown again."""
    file = tmp_path / "results.json"

    def run(*words: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "benchmarks", *words]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=True
        )

    measured = run("writes", "--quick", "--rounds=1", f"--json={file}")
    shown = run("--read", str(file))

    assert re.search(r"1 of \d+: writes, round 1 of 1, aioelastic 1 rank", measured.stderr)
    assert re.search(r"^lines of 100 bytes .*, 1 rank +µs +[\d.]+ +[\d.]+", measured.stdout, re.MULTILINE)
    assert json.loads(file.read_text())["sections"][0]["name"] == "writes"
    assert shown.stdout == measured.stdout
    assert shown.stderr == ""


def test_a_measurement_that_fails_is_told(tmp_path: Path) -> None:
    """Where there is no ``cat``, nothing is measured: the table says why, and the exit status is not 0."""
    command = [sys.executable, "-m", "benchmarks", "throughput", "--quick", "--rounds=1"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PATH": str(tmp_path)}

    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 1
    assert "failed: throughput, plain asyncio 4 ranks: status 1" in done.stdout
    assert "FileNotFoundError" in done.stdout


@pytest.mark.parametrize(
    ("ours", "theirs", "verdicts"),
    [
        pytest.param([9, 1000, 8], [5, 4, 4], [True, True], id="one bad round is no median"),
        pytest.param([11, 11, 11], [5, 5, 5], [False, True], id="too late"),
        pytest.param([9, 9, 9], [5, 5, 1], [True, False], id="too slow"),
        pytest.param([9], [], [True, None], id="nobody to compare with"),
        pytest.param([], [5], [None], id="nothing to compare"),
    ],
)
def test_goals_are_held_against_medians(
    results_of: Any, ours: list[float], theirs: list[float], verdicts: list[bool | None]
) -> None:
    """A bound is a number, or comes from another's median; less is better, or more."""
    rows = results_of(ours, theirs).sections[0].rows

    assert [row.is_held for row in rows] == verdicts


def test_the_table_has_medians_extremes_and_verdicts(results_of: Any) -> None:
    """A line for each figure, a column for each subject."""
    from measuring.table import table  # noqa: PLC0415 - it is found only now

    lines = table(results_of([9, 9.5, 300], [5, 5, 5])).splitlines()

    assert [re.split(r" {2,}", line) for line in lines[2:]] == [
        ["Some"],
        ["", "unit", "aioelastic", "plain asyncio", "goal"],
        ["delay, 1 rank", "ms", "9.50 (9.00-300)", "-", "at most 10.0", "held"],
        ["speed, 1 rank", "MB/s", "9.50 (9.00-300)", "5.00 (5.00-5.00)", "at least 10.0", "MISSED"],
        [""],
        ["The numbers are medians (and extremes); 1 of 2 goals are held."],
    ]


def test_a_page_is_filled_between_its_marks(results_of: Any) -> None:
    """What was measured is put in, what was not stays, and to fill it again changes nothing."""
    from measuring.page import filled  # noqa: PLC0415 - it is found only now

    def marked(name: str, *lines: str) -> str:
        return "\n".join(["words", f"<!-- begin {name} -->", *lines, f"<!-- end {name} -->", ""])

    results = results_of([9], [5])

    page = filled(marked("machine") + marked("some", "old") + marked("other", "old"), results)

    rows = (
        "| what | unit | aioelastic | plain asyncio | goal |  |",
        "| --- | --- | --- | --- | --- | --- |",
        "| delay, 1 rank | ms | **9.00** | - | at most 10.0 | held |",
        "| speed, 1 rank | MB/s | **9.00** | 5.00 | at least 10.0 | MISSED |",
    )
    assert page == (
        marked("machine", "", "* Python: 3.11", "") + marked("some", "", *rows, "") + marked("other", "old")
    )
    assert filled(page, results) == page
