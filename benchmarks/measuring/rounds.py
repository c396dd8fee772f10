"""Runs all cases of a module, round by round, each in a fresh interpreter."""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final, cast

from measuring.plan import TORCH, Case, is_installed
from measuring.rows import Section, rows_of

if TYPE_CHECKING:
    from measuring.plan import FigureModule

BENCHMARKS: Final = Path(__file__).parent.parent
PATIENCE: Final = 120.0
"""Seconds after which a measurement is given up."""


class MeasurementError(Exception):
    """A measurement gave no numbers."""


class Progress:
    """Tells on stderr what is measured, and how much is left."""

    def __init__(self, total: int) -> None:
        self._total = total
        self._done = 0
        self._begin = time.monotonic()

    def begin(self, words: str) -> None:
        """Tell that the next measurement begins."""
        self._done += 1
        self.tell(f"{self._done} of {self._total}: {words}")

    def tell(self, words: str) -> None:
        """Tell something else."""
        print(f"{time.monotonic() - self._begin:4.0f} s  {words}", file=sys.stderr, flush=True)


def run_figures(names: Sequence[str], *, rounds: int, quick: bool) -> list[Section]:
    """Measure, in a folder that is taken away in the end."""
    plans = {name: _load(name) for name in names}
    cases = {
        name: [case for case in plan.cases(quick=quick) if is_installed(case.subject)] for name, plan in plans.items()
    }
    progress = Progress(
        sum(case.is_due(number) for each in cases.values() for case in each for number in range(rounds))
    )
    if not is_installed(TORCH):
        progress.tell("torch is not installed, so it is left out: pip install 'aioelastic[bench]', on Python 3.11")
    with tempfile.TemporaryDirectory(prefix="aioelastic_benchmarks_") as shared:
        return [_run_module(name, plans[name], cases[name], rounds, Path(shared), progress) for name in names]


def _load(name: str) -> "FigureModule":
    return cast("FigureModule", import_module(f"figures.{name}"))


def _run_module(
    name: str, module: "FigureModule", cases: Sequence[Case], rounds: int, shared: Path, progress: Progress
) -> Section:
    """Measure all cases of a module, in turns, so that a drift of the machine hits all subjects."""
    measured: list[list[dict[str, float]]] = [[] for _ in cases]
    faults = []
    for number in range(rounds):
        for case, numbers in zip(cases, measured, strict=True):
            if not case.is_due(number):
                continue
            progress.begin(f"{name}, round {number + 1} of {rounds}, {case.subject} {case.label}".rstrip())
            try:
                numbers.append(_run_child(name, case, shared))
            except MeasurementError as error:
                faults.append(str(error))
                progress.tell(f"failed: {error}")
    rows = rows_of(module.FIGURES, cases, measured)
    return Section(name=name, title=module.TITLE, rows=rows, charts=list(module.CHARTS), faults=faults)


def _run_child(module: str, case: Case, shared: Path) -> dict[str, float]:
    """Measure in a process of its own, its console on /dev/null."""
    with tempfile.TemporaryDirectory(dir=shared) as folder:
        result = Path(f"{folder}.json")
        words = (module, json.dumps(asdict(case)), folder, str(result))
        try:
            done = _run([sys.executable, "-m", "measuring.child", *words])
        except subprocess.TimeoutExpired as error:
            raise MeasurementError(f"{module}, {case.subject} {case.label}: took over {PATIENCE:g} s") from error
        if done.returncode or not result.exists():
            raise MeasurementError(f"{module}, {case.subject} {case.label}: status {done.returncode}\n{done.stderr}")
        measured: dict[str, float] = json.loads(result.read_text())
        return measured


def _run(command: Sequence[str]) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
    # What is installed is compiled, so what is run from a clone should be as well.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    # A rank that is a function is looked up by its module in processes that multiprocessing starts.
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, (str(BENCHMARKS), os.environ.get("PYTHONPATH"))))
    return subprocess.run(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        timeout=PATIENCE,
        check=False,
    )
