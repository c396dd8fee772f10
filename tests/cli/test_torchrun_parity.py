"""A PyTorch job under torchrun and under ``aioelastic run``: one word changes, and nothing else."""

import json
import os
import re
import socket
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

import pytest

from tests.helpers.drivers import ROOT

pytestmark = pytest.mark.skipif(find_spec("torch") is None, reason="compares with torchrun, and torch is not installed")

TORCHRUN: Final = ("torch.distributed.run",)
OURS: Final = ("aioelastic", "run")

TOLD: Final = frozenset(
    {
        *("LOCAL_RANK", "RANK", "GROUP_RANK", "ROLE_RANK", "ROLE_NAME"),
        *("LOCAL_WORLD_SIZE", "WORLD_SIZE", "GROUP_WORLD_SIZE", "ROLE_WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"),
        *("TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "TORCHELASTIC_RUN_ID"),
        *("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"),
        *("TORCH_NCCL_ASYNC_ERROR_HANDLING", "OMP_NUM_THREADS"),
    }
)
"""The variables that torchrun gives to each rank."""

MEANT: Final = {
    # Nobody but rank 0 hosts a store here.
    "TORCHELASTIC_USE_AGENT_STORE": ("True", "False"),
    # By torchrun the script itself runs with -u, but not what it starts.
    "PYTHONUNBUFFERED": (None, "1"),
}
"""The variables that differ on purpose: torchrun's value, and ours."""

WITNESS: Final = """\
import json, os, sys
with open(os.environ["RANK"] + ".json", "w") as file:
    json.dump([dict(os.environ), sys.argv, sys.stdout.write_through], file)
"""
"""Writes down a rank's variables and arguments, and whether it is unbuffered."""

RAISING: Final = """\
import os, signal
if os.environ["RANK"] == "0":
    signal.pause()
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    raise ValueError("the learning rate is negative")
main()
"""
"""Has rank 1 raise, within PyTorch's own ``record``."""


def launch(
    launcher: tuple[str, ...], *words: object, cwd: Path, **variables: str
) -> "subprocess.CompletedProcess[str]":
    """Run a launcher to its end, in a directory, without what the tests' own surroundings say to one."""
    theirs = ("TORCH", "PET_", "OMP_", "PYTHONUNBUFFERED", "AIOELASTIC_", "SLURM_")
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(theirs)}
    environment = {**inherited, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, "-m", *launcher, *map(str, words)]
    cwd.mkdir(exist_ok=True)
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=200, check=False)


def witness(launcher: tuple[str, ...], *words: object, cwd: Path) -> list[tuple[dict[str, str], list[str], bool]]:
    """Give what each of two ranks was told, without what never is the same."""
    script = cwd.parent / "witness.py"
    script.write_text(WITNESS)
    # Those of the script look like a launcher's, and like its macro.
    arguments = ("--nproc-per-node", 9, "-m", "--flag=x", "", "a b", "${local_rank}")
    done = launch(launcher, "--nproc-per-node", 2, *words, script, *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    told = []
    for rank in range(2):
        variables, argv, unbuffered = json.loads((cwd / f"{rank}.json").read_text())
        assert variables.keys() >= TOLD
        assert variables.pop("TORCHELASTIC_ERROR_FILE").endswith(f"/attempt_0/{rank}/error.json")
        variables.pop("AIOELASTIC_RANK_TOKEN", None)
        told.append((variables, argv, unbuffered))
    return told


def differences(theirs: dict[str, str], ours: dict[str, str]) -> dict[str, tuple[str | None, str | None]]:
    """Give the variables that differ, with both values."""
    pairs = {name: (theirs.get(name), ours.get(name)) for name in theirs.keys() | ours.keys()}
    return {name: pair for name, pair in pairs.items() if pair[0] != pair[1]}


def free_port() -> int:
    """Give a port that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_ranks_are_told_the_same_of_a_place_that_is_given(tmp_path: Path) -> None:
    """With a run id and a port, each rank has exactly torchrun's variables and arguments."""
    words = ("--rdzv-id", "job7", "--master-port", free_port(), "--max-restarts", 2, "--role", "trainer")

    theirs = witness(TORCHRUN, *words, cwd=tmp_path / "theirs")
    ours = witness(OURS, *words, cwd=tmp_path / "ours")

    for (their_variables, *their_rest), (our_variables, *our_rest) in zip(theirs, ours, strict=True):
        assert differences(their_variables, our_variables) == MEANT
        assert their_rest == our_rest


def test_ranks_are_told_the_same_when_nothing_is_given(tmp_path: Path) -> None:
    """On one node of its own, only the free port and the fresh run id are other ones than torchrun's."""
    theirs = witness(TORCHRUN, cwd=tmp_path / "theirs")
    ours = witness(OURS, cwd=tmp_path / "ours")

    for (their_variables, *their_rest), (our_variables, *our_rest) in zip(theirs, ours, strict=True):
        found = differences(their_variables, our_variables)
        assert found.pop("TORCHELASTIC_RUN_ID")
        found.pop("MASTER_PORT", None)
        assert found == MEANT
        assert their_rest == our_rest
        assert our_variables["MASTER_ADDR"] == "localhost"
    assert len({variables["MASTER_PORT"] for variables, *_ in ours}) == 1


@pytest.mark.timeout(400)
def test_a_training_survives_a_killed_rank(tmp_path: Path) -> None:
    """A DDP job whose rank is killed resumes from its checkpoint, and gives the same numbers under both launchers."""
    job = ("--nproc-per-node", 2, "--max-restarts", 1, ROOT / "docs/examples/train_ddp.py", "--die-at", 33)
    # Without this, torch 2.13 gives the second attempt the store of the first, with the addresses of dead ranks.
    fresh_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}

    theirs = launch(TORCHRUN, *job, cwd=tmp_path / "theirs", **fresh_store)
    ours = launch(OURS, *job, cwd=tmp_path / "ours")

    assert (theirs.returncode, ours.returncode) == (0, 0), theirs.stderr + ours.stderr
    assert ours.stdout == theirs.stdout
    assert "rank 1: SIGKILL" in ours.stderr
    lines = ours.stdout.splitlines()
    assert lines[0] == "new model, 2 ranks"
    assert lines[4:6] == ["rank 1 kills itself after step 33", "resumed from step 30"]
    losses = [float(found[1]) for line in lines if (found := re.fullmatch(r"step .* loss (\S+)", line))]
    assert len(losses) == 6
    assert losses == sorted(losses, reverse=True)
    assert re.fullmatch(r"done: 9\d\.\d% of the test pictures are told right", lines[-1])


def test_an_exception_within_pytorchs_record_is_the_root_cause(tmp_path: Path) -> None:
    """A script that uses torch's ``record`` reports its exception to our command line, which ends with its code."""
    script = tmp_path / "raising.py"
    script.write_text(RAISING)

    done = launch(OURS, "--nproc-per-node", 2, script, cwd=tmp_path)

    assert done.returncode == 1
    report = done.stderr.partition("Root cause: ")[2]
    assert report.startswith("rank 1 ")
    assert "ValueError: the learning rate is negative" in report
    assert f'File "{script}", line 7, in main' in report


def test_the_exit_status_is_the_root_causes(tmp_path: Path) -> None:
    """Where torchrun ends with 1 whatever has happened, we end with the code of the root cause."""
    job: tuple[Any, ...] = ("--no-python", "--nproc-per-node", 2, "sh", "-c", "[ $RANK = 0 ] && exec sleep 60; exit 7")

    theirs = launch(TORCHRUN, *job, cwd=tmp_path)
    ours = launch(OURS, *job, cwd=tmp_path)

    assert (theirs.returncode, ours.returncode) == (1, 7)
