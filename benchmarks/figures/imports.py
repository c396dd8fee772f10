"""Imports: the time of a fresh interpreter that imports something, and its memory then; the floor imports nothing."""

import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH, Case, Chart, Figure, at_most

TITLE = "Import in a fresh interpreter"

FIGURES = (
    Figure(key="whole", name="start to end of the interpreter", unit="ms", goal=at_most(120)),
    Figure(key="import", name="the import alone", unit="ms"),
    Figure(key="memory", name="resident memory", unit="MB", goal=at_most(30)),
)

CHARTS = (Chart(name="imports", title="A fresh interpreter that imports, ms", figure="whole"),)

PROGRAMS: Final = {
    AIOELASTIC: "from aioelastic import start_processes",
    ASYNCIO: "import asyncio",
    TORCH: "from torch.distributed.elastic.multiprocessing import start_processes",
    FLOOR: "pass",
}

MEMORY: Final = "\nfor line in open('/proc/self/status'):\n if line.startswith('VmRSS'): print(line.split()[1])"


def cases(*, quick: bool) -> list[Case]:
    """Take several samples in turns with the bare interpreter; torch takes its time."""
    return [
        Case(subject=subject, parameters={"samples": 1 if quick or subject == TORCH else 7}) for subject in PROGRAMS
    ]


def measure(case: Case, _: Path) -> dict[str, float]:
    """Start interpreters; the first one compiles, and fetches from the disk."""
    program = PROGRAMS[case.subject]
    memory = int(subprocess.run([sys.executable, "-c", program + MEMORY], check=True, stdout=subprocess.PIPE).stdout)
    taken, bare = [], []
    for _turn in range(case.parameters["samples"]):
        taken.append(_milliseconds(program))
        bare.append(_milliseconds(PROGRAMS[FLOOR]))
    whole = statistics.median(taken)
    figures = {"whole": whole, "memory": memory / 1e3}
    return figures if case.subject == FLOOR else {**figures, "import": whole - statistics.median(bare)}


def _milliseconds(program: str) -> float:
    begin = time.perf_counter()
    subprocess.run([sys.executable, "-c", program], check=True)
    return (time.perf_counter() - begin) * 1e3
