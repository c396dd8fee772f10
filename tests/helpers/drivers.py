"""Supervisors as programs of their own, for what a test cannot do to the process it runs in."""

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import aioelastic

ROOT: Final = Path(__file__).parent.parent.parent
"""The folder that the package under test is imported from."""

LOOPS: Final = ("asyncio", "uvloop")
"""The event loops a driver can be run on; its first argument."""

_PRELUDE = """\
import asyncio, json, logging, os, re, resource, signal, sys, time
from pathlib import Path
import aioelastic
{names}
if sys.argv[1] == "uvloop":
    from uvloop import new_event_loop
else:
    from asyncio import new_event_loop

def run(main):
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main())

"""


def driver_command(program: str, loop: str, *arguments: object, shell: str = "") -> list[str]:
    """Give the command that runs a supervisor.

    Args:
        program: Its source; it finds what it names of aioelastic imported, and ``run(main)``.
        loop: One of `LOOPS`.
        arguments: What it finds in ``sys.argv[2:]``.
        shell: Commands that a shell does first, for instance ``trap '' HUP``.
    """
    # All of them would take a tenth of a second, in each of a hundred drivers.
    used = {*re.findall(r"\w+", program)}.intersection(aioelastic.__all__)
    names = "".join(f"from aioelastic import {name}\n" for name in sorted(used))
    source = _PRELUDE.replace("{names}", names) + program
    words = [sys.executable, "-W", "error", "-c", source, loop, *map(str, arguments)]
    return ["/bin/sh", "-c", f'{shell}\nexec "$@"', "sh", *words] if shell else words


def driver_environment() -> dict[str, str]:
    """Give variables with which a driver finds the package under test."""
    return {**os.environ, "PYTHONPATH": str(ROOT)}


def run_driver(program: str, loop: str, *arguments: object, shell: str = "") -> str:
    """Run a supervisor to its end, which must be a good one without complaints, and give what it printed."""
    done = subprocess.run(
        driver_command(program, loop, *arguments, shell=shell),
        env=driver_environment(),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=60,
        check=False,
    )

    complaints = done.stderr.decode()
    assert not complaints, complaints
    assert done.returncode == 0
    return done.stdout.decode()
