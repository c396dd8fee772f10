"""The soak of benchmarks/: a few rounds of it find nothing, and every fault that it is to notice is noticed."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.drivers import ROOT

SEED: Final = 7
"""Rounds of this seed are run."""

BENCHMARKS: Final = ROOT / "benchmarks"


@pytest.fixture
def plan_of(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], Any]]:
    """Give what tells a round's plan from its number."""
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    from soaking.dice import plan_round  # noqa: PLC0415 - it is found only now

    yield lambda number: plan_round(SEED, number, guard=False)
    for name in [name for name in sys.modules if name.partition(".")[0] == "soaking"]:
        del sys.modules[name]


def soak(directory: Path, *options: object) -> "subprocess.CompletedProcess[str]":
    """Run the soak to its end."""
    return subprocess.run(
        [sys.executable, "benchmarks/soak.py", f"--seed={SEED}", f"--directory={directory}", *map(str, options)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def planted(directory: Path, number: int, *faults: str, patience: float) -> "subprocess.CompletedProcess[str]":
    """Run a round with faults of the soak's own making."""
    plants = [f"--plant={fault}" for fault in faults]
    return soak(directory, "--without-guard", f"--round={number}", f"--patience={patience}", *plants)


def a_round(plan_of: Callable[[int], Any], is_good: Callable[[Any], bool]) -> int:
    """Find a round by its plan."""
    return next(number for number in range(100_000) if is_good(plan_of(number)))


def is_waited_for(group: Any) -> bool:
    """Tell whether a group is left in peace, and leaves nothing behind."""
    calm = not any(rank.kin or rank.kill or rank.stops or rank.deaf for rank in group.ranks)
    return calm and group.action.kind == "wait to the end"


def test_some_rounds_find_nothing(tmp_path: Path) -> None:
    """Rounds without a fault are without findings, and leave no files."""
    done = soak(tmp_path, "--rounds=2", "--report=1")

    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.startswith("1 rounds, ")
    assert not list(tmp_path.iterdir())


def test_it_notices_what_is_left_behind_and_wrong_results(tmp_path: Path, plan_of: Callable[[int], Any]) -> None:
    """Leaks, strays, notices, and results that are not what the ranks did, are each found, with the way to see them."""

    def is_good(plan: Any) -> bool:
        [group, *more] = plan.groups
        fails = any(not rank.succeeds and not rank.pause for rank in group.ranks)
        return fails and len(group.ranks) <= 4 and not more and is_waited_for(group)

    number = a_round(plan_of, is_good)
    faults = ("descriptor", "thread", "process", "stray", "notice", "code", "value", "failure")
    done = planted(tmp_path, number, *faults, patience=4)

    assert done.returncode == 1, done.stdout + done.stderr
    signs = (
        *("leak: .*descriptor", "leak: .*thread planted", "leak: .*process .*sleep 20", "survivor: .*sleep 21"),
        *("notice: .*planted", "exit: .*not explained", "value: .*should be", "failure: .*it has none"),
    )
    assert [sign for sign in signs if not re.search(f"FOUND {sign}", done.stdout)] == []
    assert f"python benchmarks/soak.py --seed {SEED} --round {number} --without-guard" in done.stdout


def test_it_notices_wrong_output(tmp_path: Path, plan_of: Callable[[int], Any]) -> None:
    """A byte, the end of a file, a line on the console and one in a filtered copy are each missed."""

    def is_good(plan: Any) -> bool:
        [group, *more] = plan.groups
        copied = group.filtered and group.keeps_logs and group.ways() == {"tee"}
        talks = sum(sum(rank.records) for rank in group.ranks) > 100 and all(rank.succeeds for rank in group.ranks)
        seen = set(plan.consoles) <= {"file", "pipe"}
        return copied and talks and seen and not more and is_waited_for(group)

    done = planted(tmp_path, a_round(plan_of, is_good), "byte", "short", "console", "filtered", patience=4)

    assert done.returncode == 1, done.stdout + done.stderr
    signs = ("file: .*differs from byte", "file: .*that were written", "console: ", "filtered copy: ")
    assert [sign for sign in signs if not re.search(f"FOUND {sign}", done.stdout)] == []


def test_it_notices_a_hang(tmp_path: Path, plan_of: Callable[[int], Any]) -> None:
    """A supervisor that does not come back is a finding, with the place where it stands, and does not hang the soak."""
    number = a_round(plan_of, lambda plan: len(plan.groups) == 1 and is_waited_for(plan.groups[0]))
    done = planted(tmp_path, number, "hang", patience=1)

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search("FOUND hang: .*the supervisor hung: .*_plant", done.stdout, re.DOTALL)
