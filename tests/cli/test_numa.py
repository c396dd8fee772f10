"""``aioelastic numa``, as a person runs it."""

import os
import signal
import subprocess
import sys
from dataclasses import replace
from importlib.metadata import entry_points

import pytest

from aioelastic._cli.main import main
from aioelastic._cli.numa import describe_machine
from aioelastic._numa.devices import Accelerator
from aioelastic._numa.machine import Machine
from aioelastic._numa.topology import read_topology
from tests.helpers.drivers import ROOT

FOUR_CPUS = Machine(
    topology=read_topology("/no/such/place", known_cpus=range(4)), devices=(), allowance=frozenset(range(4))
)
"""A machine of which nothing but the number of its CPUs is known."""


def aioelastic(*words: str) -> "subprocess.CompletedProcess[str]":
    """Run the command line."""
    command = [sys.executable, "-m", "aioelastic", *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, cwd=ROOT)


def test_it_shows_this_machine() -> None:
    """It says what the machine has, and gives a row per rank and a column per mode."""
    done = aioelastic("numa", "--nproc-per-node", "2")

    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert f"({len(os.sched_getaffinity(0))} allowed" in lines[0]
    assert any(line.startswith("  node 0: ") for line in lines)
    header = lines.index("")
    assert lines[header + 1].split() == ["rank", "node", "socket", "exclusive", "core-complex"]
    assert [line.split()[0] for line in lines[header + 2 : header + 4]] == ["0", "1"]


@pytest.mark.parametrize("number", ["0", "-1", "two", "1.5", "٣"])
@pytest.mark.half
def test_a_number_of_ranks_that_is_none(number: str) -> None:
    """What is no number of ranks is refused in one line that says what is."""
    done = aioelastic("numa", f"--nproc-per-node={number}")

    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].endswith(f"{number!r} is no number of ranks: give 1 or more")


def test_it_ends_with_its_reader() -> None:
    """When ``head`` has seen enough, it ends without a word, as other programs do."""
    reading, writing = os.pipe()
    os.close(reading)
    command = [sys.executable, "-m", "aioelastic", "numa"]
    done = subprocess.run(command, stdout=writing, stderr=subprocess.PIPE, timeout=60, check=False, cwd=ROOT)
    os.close(writing)

    assert (done.returncode, done.stderr) == (-signal.SIGPIPE, b"")


def test_without_a_subcommand_it_says_what_there_is() -> None:
    """The command alone is an error that lists the subcommands."""
    done = aioelastic()

    assert done.returncode == 2
    assert "COMMAND" in done.stderr


def test_the_table_is_exact() -> None:
    """Two ranks on four CPUs: all of the node, of the socket, two each, and the only complex."""
    lines = list(describe_machine(FOUR_CPUS, 2))

    assert lines[lines.index("") + 1 :] == [
        "rank  node  socket  exclusive  core-complex",
        "0     0-3   0-3     0-1        0-3",
        "1     0-3   0-3     2-3        0-3",
    ]


def test_ranks_that_cannot_be_bound_are_explained() -> None:
    """Where a mode cannot bind a rank the table says so, and the reason stands below it."""
    lines = list(describe_machine(FOUR_CPUS, 5))

    assert sum("not bound" in line for line in lines) == 5
    assert "cannot share 4 allowed cores exclusively" in lines[-1]


def test_accelerators_are_listed_with_their_nodes() -> None:
    """Each accelerator that ranks may use is named, and those that are hidden as well."""
    seen = Accelerator(vendor="nvidia", address="0000:07:00.0", node=0)
    hidden = Accelerator(vendor="nvidia", address="0000:0b:00.0", node=None)
    machine = replace(FOUR_CPUS, devices=(seen,), hidden=(hidden,), notes=("uncertain",))

    text = "\n".join(describe_machine(machine, 1))

    assert "GPU 0 (nvidia 0000:07:00.0): node 0" in text
    assert "hidden: nvidia 0000:0b:00.0" in text
    assert "note: uncertain" in text


def test_the_installed_script_is_the_module() -> None:
    """What an installation calls ``aioelastic`` is what ``python -m aioelastic`` runs."""
    (script,) = entry_points(group="console_scripts", name="aioelastic")

    assert script.load() is main
