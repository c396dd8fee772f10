"""Runs of pytest within tests: the plugin as a user's suite has it, and groups that tell how they ended."""

import os
import re
import sys
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final

import psutil
import pytest

GROUPS: Final = '''
"""Groups that tell how they end: in a file of their name, and by their pid."""

import asyncio
from pathlib import Path

HERE = Path(__file__).parent
UNTIL_TERM = 'trap "echo bye >> $0; exit 0" TERM; echo up | tee -a $0; while :; do sleep 0.05; done'


async def start(start_processes, name, **options):
    options.setdefault("orphan_guard", False)
    path = HERE / f"{name}.told"
    context = await start_processes(name, "sh", {0: ("-c", UNTIL_TERM, str(path))}, **options)
    with (HERE / "pids").open("a") as pids:
        print(context.pids()[0], file=pids)
    while not path.exists() or not path.read_text():
        await asyncio.sleep(0.005)
    return context
'''
"""A module for the inner suites."""

_OUTCOME: Final = re.compile(r"^(PASSED|FAILED|ERROR|XFAIL|SKIPPED) \S+::(\S+)", re.MULTILINE)


@dataclass(frozen=True)
class InnerRun:
    """What came of an inner run.

    Attributes:
        status: Its exit status.
        output: What it printed.
        outcomes: Test -> word of the summary; two words if its tear-down failed, too.
        told: Group -> what its rank has told.
        left: Pids of ranks that are alive.
    """

    status: int
    output: str
    outcomes: dict[str, str]
    told: dict[str, str]
    left: list[int]


def plugin_options() -> tuple[str, ...]:
    """Give what makes pytest load the plugin where it does not find it by itself: an older editable install."""
    installed = "PYTEST_DISABLE_PLUGIN_AUTOLOAD" not in os.environ and any(
        each.name == "aioelastic" for each in entry_points(group="pytest11")
    )
    return () if installed else ("-p", "aioelastic.pytest_plugin")


def run_inner(pytester: pytest.Pytester, suite: str, *options: str, ini: str = "") -> InnerRun:
    """Run a suite in a process of its own, where every warning is an error."""
    pytester.makepyfile(groups=GROUPS, test_suite=suite)
    # A suite takes its options from here: this project's own are not for it.
    pytester.makeini(f"[pytest]\naddopts = -p no:cacheprovider\nasyncio_default_fixture_loop_scope = function\n{ini}\n")
    done = pytester.run(
        sys.executable, "-W", "error", "-X", "dev", "-m", "pytest", "-rA", *plugin_options(), *options, timeout=100
    )
    output = "\n".join([*done.outlines, *done.errlines])
    outcomes: dict[str, str] = {}
    for word, name in _OUTCOME.findall(output):
        outcomes[name] = f"{outcomes[name]} {word}" if name in outcomes else word
    pids = pytester.path / "pids"
    return InnerRun(
        status=int(done.ret),
        output=output,
        outcomes=outcomes,
        told={path.stem: path.read_text().replace("\n", " ").strip() for path in pytester.path.glob("*.told")},
        left=[pid for pid in map(int, pids.read_text().split()) if _is_alive(pid)] if pids.exists() else [],
    )


def _is_alive(pid: int) -> bool:
    """Tell whether a process runs; one that was killed may wait to be reaped by whoever has inherited it."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def section(output: str, title: str) -> str:
    """Give the text below a title in the output, up to the next one."""
    found = re.search(rf"^-+ {re.escape(title)} -+\n(.*?)^[-=_]{{3,}}", output, re.DOTALL | re.MULTILINE)
    assert found is not None, output
    return found[1]
