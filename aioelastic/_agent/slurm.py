"""Where in the world Slurm has put this process (pure).

What the variables mean is in "OUTPUT ENVIRONMENT VARIABLES" of srun(1).
"""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

from aioelastic._base.counts import counted
from aioelastic._errors.exceptions import SpecificationError

_FIRST_PORT: Final = 10000
_PORTS: Final = 19489
"""Ports that jobs are spread over, from `_FIRST_PORT` on: a prime, and all below those of outgoing connections."""

_PORTS_PER_JOB: Final = 131
"""How far apart the ports of two jobs in a row are: as many steps of one job do not meet the next job's first."""

_LAST_STEP: Final = 0xFFFFFFF0
"""Greater numbers stand for what is no step of srun's: the batch script, the interactive shell of salloc."""


class SlurmPlace(NamedTuple):
    """What Slurm's variables say of this node's place in a job step.

    Attributes:
        nnodes: How many nodes the step has.
        node_rank: This node's number among them, from 0.
        master_addr: The first of them.
        master_port: A port that follows from job and step, so that all nodes know it.
        run_id: The name of job and step.
    """

    nnodes: int
    node_rank: int
    master_addr: str
    master_port: int
    run_id: str


def slurm_place(environ: Mapping[str, str]) -> SlurmPlace | None:
    """Read a node's place in the world from the variables that srun sets.

    A batch script has most of them, too, but runs on one node only; so they count within a step.

    Args:
        environ: The variables.

    Returns:
        The place, or ``None`` outside of a step.

    Raises:
        SpecificationError: A variable of the step is missing or makes no sense, or srun has started more than one
            task on a node.

    Example:
        >>> variables = {"SLURM_JOB_ID": "4711", "SLURM_STEP_ID": "0", "SLURM_NODEID": "1"}
        >>> place = slurm_place(variables | {"SLURM_STEP_NUM_NODES": "2", "SLURM_STEP_NODELIST": "gpu[01-02]"})
        >>> place.node_rank, place.master_addr, place.run_id
        (1, 'gpu01', 'slurm-4711.0')
    """
    if not ({"SLURM_STEP_ID", "SLURM_STEPID"} & set(environ)):
        return None
    step = _number(environ, "SLURM_STEP_ID", "SLURM_STEPID")
    if step > _LAST_STEP:
        return None
    job = _number(environ, "SLURM_JOB_ID", "SLURM_JOBID")
    nnodes = _number(environ, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
    node_rank = _number(environ, "SLURM_NODEID")
    if node_rank >= nnodes:
        raise SpecificationError(f"SLURM_NODEID is {node_rank}, and the step has {nnodes} nodes: nodes count from 0")
    _require_one_task_per_node(environ, nnodes)
    return SlurmPlace(
        nnodes=nnodes,
        node_rank=node_rank,
        master_addr=first_host(_value(environ, "SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST", "SLURM_NODELIST")),
        master_port=_FIRST_PORT + (job * _PORTS_PER_JOB + step) % _PORTS,
        run_id=f"slurm-{job}.{step}",
    )


def first_host(nodes: str) -> str:
    """Give the first host of a list in Slurm's short form.

    Raises:
        SpecificationError: It is no such list.

    Example:
        >>> first_host("gpu[01-03,07],login1"), first_host("rack[1-2]node[0-9]")
        ('gpu01', 'rack1node0')
    """
    # A comma within brackets goes on with the same host's numbers.
    match = re.match(r"(?:[^\[\],\s]|\[[^\[\]\s]+\])+(?=,|$)", nodes.strip())
    host = re.sub(r"\[(\w+)[^\]]*\]", r"\1", match[0]) if match else ""
    if not host or "[" in host:
        raise SpecificationError(f"the list of nodes is {nodes!r}, which is not in the form of Slurm's, as gpu[01-03]")
    return host


def _require_one_task_per_node(environ: Mapping[str, str], nnodes: int) -> None:
    if "SLURM_STEP_NUM_TASKS" not in environ:
        return
    tasks = _number(environ, "SLURM_STEP_NUM_TASKS")
    if tasks > nnodes:
        raise SpecificationError(
            f"srun has started {tasks} tasks on {counted(nnodes, 'node')}, and one agent per node "
            "starts all ranks of it: use srun --ntasks-per-node=1, or make each task a run of its own"
        )


def _number(environ: Mapping[str, str], *names: str) -> int:
    name, value = _found(environ, *names)
    if not re.fullmatch(r"[0-9]{1,10}", value, re.ASCII):
        raise SpecificationError(f"{name} is {value!r}, which is no number: is it Slurm that has set it?")
    return int(value)


def _value(environ: Mapping[str, str], *names: str) -> str:
    return _found(environ, *names)[1]


def _found(environ: Mapping[str, str], *names: str) -> tuple[str, str]:
    """Give the name and the value of the first variable that is set."""
    for name in names:
        if name in environ:
            return name, environ[name].strip()
    raise SpecificationError(
        f"{names[0]} is not set, although this is a job step of Slurm's: give the node's place by options, "
        "or have srun pass its variables on"
    )
