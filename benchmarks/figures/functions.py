"""Ranks that are functions: how long from the start to their values, and how a large value travels.

They return their square, by each start method; the fork servers of all are warm. Measured in `programs/function_ranks`.
"""

import json
import subprocess
import sys
from pathlib import Path
from typing import Final

from measuring.plan import AIOELASTIC, TORCH, Case, Chart, Figure

TITLE = "Ranks that are functions, to their values"

PROGRAM: Final = Path(__file__).parent.parent / "programs" / "function_ranks.py"

GOALS: Final = {"spawn": 200.0, "forkserver": 40.0, "fork": 20.0}
"""Milliseconds for four ranks, by start method."""

POOL: Final = "multiprocessing.Pool"
EXECUTOR: Final = "ProcessPoolExecutor"

SLOW: Final = ((TORCH, "spawn"), (TORCH, "forkserver"))
"""Each of their ranks imports torch anew."""

FIGURES = (
    Figure(
        key="seconds",
        name="start to values",
        unit="ms",
        goal=lambda case, _: GOALS.get(case.parameters["words"][0]),
    ),
    Figure(key="speed", name="one value", unit="MB/s", more_is_better=True),
    Figure(key="memory", name="memory beyond it", unit="MB"),
    Figure(key="max", name="loop delay, worst", unit="ms"),
)

CHARTS = (Chart(name="functions", title="Four functions, start to values, ms", figure="seconds"),)


def cases(*, quick: bool) -> list[Case]:
    """Take each start method, then one large value."""
    found = []
    for method in GOALS:
        for subject in (AIOELASTIC, POOL, EXECUTOR, TORCH):
            words = (method, 4, 1 if quick or (subject, method) in SLOW else 5)
            rounds = 2 if (subject, method) in SLOW else None
            found.append(Case(subject=subject, label=f"4 ranks, {method}", parameters={"words": words}, rounds=rounds))
    megabytes = 20 if quick else 300
    found += [
        Case(subject=subject, label=f"{megabytes} MB", parameters={"words": ("large", megabytes)}, rounds=2)
        for subject in (AIOELASTIC, POOL, EXECUTOR, TORCH)
    ]
    return found


def measure(case: Case, _: Path) -> dict[str, float]:
    """Run the program."""
    words = map(str, (case.subject, *case.parameters["words"]))
    done = subprocess.run([sys.executable, PROGRAM, *words], stdout=subprocess.PIPE, check=True)
    measured: dict[str, float] = json.loads(done.stdout)
    return measured
