"""A node's place as Slurm's variables tell it."""

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._agent.slurm import SlurmPlace, first_host, slurm_place
from aioelastic._errors.exceptions import SpecificationError

BATCH: Final = {
    "SLURM_JOB_ID": "200505",
    "SLURM_JOBID": "200505",
    "SLURM_JOB_NODELIST": "gnode[10,20,25,37]",
    "SLURM_JOB_NUM_NODES": "4",
    "SLURM_LOCALID": "0",
    "SLURM_NNODES": "4",
    "SLURM_NODEID": "0",
    "SLURM_NODELIST": "gnode[10,20,25,37]",
    "SLURM_NTASKS": "4",
    "SLURM_PROCID": "0",
    "SLURM_TASKS_PER_NODE": "1(x4)",
}
"""What a batch script of four nodes has, which runs on the first of them."""

STEP: Final = BATCH | {
    "SLURM_NODEID": "1",
    "SLURM_STEP_ID": "3",
    "SLURM_STEPID": "3",
    "SLURM_STEP_NODELIST": "gnode[25,37]",
    "SLURM_STEP_NUM_NODES": "2",
    "SLURM_STEP_NUM_TASKS": "2",
    "SLURM_STEP_TASKS_PER_NODE": "1(x2)",
}
"""What srun gives the second node of a step on two of them."""


def without(variables: dict[str, str], *words: str) -> dict[str, str]:
    """Leave out the variables whose names have one of some words."""
    return {name: value for name, value in variables.items() if not any(word in name for word in words)}


def test_a_step_says_where_its_nodes_are() -> None:
    """What counts is the step, which may have less than the job."""
    place = slurm_place(STEP)

    assert place is not None
    assert place == SlurmPlace(
        nnodes=2, node_rank=1, master_addr="gnode25", master_port=place.master_port, run_id="slurm-200505.3"
    )


def test_older_names_will_do() -> None:
    """Where only the names of older versions are set, the place is the same."""
    older = without(STEP, "STEP_ID", "STEP_N", "JOB_ID", "JOB_N") | {"SLURM_NNODES": "4"}

    place = slurm_place(older)

    assert place is not None
    assert (place.nnodes, place.master_addr, place.run_id) == (4, "gnode10", "slurm-200505.3")


@pytest.mark.parametrize("variables", [{}, {"PATH": "/bin"}, BATCH, STEP | {"SLURM_STEP_ID": "4294967290"}])
def test_outside_of_a_step_there_is_no_place(variables: dict[str, str]) -> None:
    """A batch script, and the shell of an interactive allocation, know of many nodes and run on one."""
    assert slurm_place(variables) is None


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        (without(STEP, "NODEID"), "SLURM_NODEID is not set, although this is a job step"),
        (without(STEP, "JOB"), "SLURM_JOB_ID is not set"),
        (without(STEP, "NODELIST"), "SLURM_STEP_NODELIST is not set"),
        (without(STEP, "NODES"), "SLURM_STEP_NUM_NODES is not set"),
        (STEP | {"SLURM_NODEID": "2"}, "SLURM_NODEID is 2, and the step has 2 nodes"),
        (STEP | {"SLURM_NODEID": "-1"}, "SLURM_NODEID is '-1', which is no number"),
        (STEP | {"SLURM_STEP_ID": "batch"}, "SLURM_STEP_ID is 'batch', which is no number"),
        (STEP | {"SLURM_JOB_ID": "\u0664"}, "SLURM_JOB_ID is '\u0664', which is no number"),
        (STEP | {"SLURM_STEP_NODELIST": "gnode[25"}, r"the list of nodes is 'gnode\[25'"),
        (STEP | {"SLURM_STEP_NUM_TASKS": "16"}, "16 tasks on 2 nodes.*--ntasks-per-node=1"),
    ],
)
def test_variables_that_make_no_sense_are_refused(variables: dict[str, str], message: str) -> None:
    """A guess would have each node run a world of its own; the error says which variable it is."""
    with pytest.raises(SpecificationError, match=message):
        slurm_place(variables)


@pytest.mark.parametrize(
    ("nodes", "first"),
    [
        ("login1", "login1"),
        ("login1,gpu[01-03]", "login1"),
        ("gpu[01-03,07],login1", "gpu01"),
        ("gpu[7,01-03]", "gpu7"),
        ("gpu[0099-0101]", "gpu0099"),
        ("rack[1-2]node[0-9]", "rack1node0"),
        ("a[1-2]-ib.cluster,b3", "a1-ib.cluster"),
        ("n-0[3-4]", "n-03"),
    ],
)
def test_the_first_host_of_a_list(nodes: str, first: str) -> None:
    """Short forms are opened, and zeros before a number stay."""
    assert first_host(nodes) == first


@pytest.mark.parametrize("nodes", ["", ",a", "[", "a]", "a[]", "a[b", "a[1-2]]", "a b", "a[[1]]", "a[-1]"])
def test_what_is_no_list_has_no_first_host(nodes: str) -> None:
    """A name made of the rest of a broken list would lead nowhere."""
    with pytest.raises(SpecificationError, match="the list of nodes"):
        first_host(nodes)


def port(job: int, step: int, node: int = 0) -> int:
    """Give the port that a node of a step is told."""
    numbers = {"SLURM_JOB_ID": str(job), "SLURM_STEP_ID": str(step), "SLURM_NODEID": str(node)}
    place = slurm_place(STEP | numbers)
    assert place is not None
    return place.master_port


@given(job=st.integers(1, 2**26), step=st.integers(0, 99))
def test_a_port_follows_from_job_and_step(job: int, step: int) -> None:
    """All nodes know the port, it is none of outgoing connections, and neighbours in time have others."""
    own = port(job, step)

    assert own == port(job, step, node=1)
    assert 1024 <= own < 29500
    assert own not in {port(job, step + 1), port(job + 1, step), port(job + 1, 0)}
