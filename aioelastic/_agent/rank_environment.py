"""What each rank is told of its place, as torchrun tells it: variables, arguments, the prefix of its lines (pure)."""

import os
from collections.abc import Mapping
from string import Template
from typing import Any, Final

from aioelastic._agent.rendezvous import WorldInfo
from aioelastic._agent.worker_spec import WorkerSpec
from aioelastic._agent.world_checks import checked_address
from aioelastic._base.aliases import Environment, EnvValue
from aioelastic._errors.exceptions import SpecificationError
from aioelastic._processes.command_line import rank_arguments as one_or_many

_DEVICES: Final = "CUDA_VISIBLE_DEVICES"


def rank_variables(
    spec: WorkerSpec, world: WorldInfo, local_rank: int, attempt: int, inherited: Mapping[str, str]
) -> dict[str, EnvValue]:
    """Give a rank's own variables, which come on top of what it inherits.

    What says the rank's place wins over ``spec.envs``, and that over the defaults, which are only for what is set
    nowhere; a variable that ``spec.envs`` removes stays removed.

    Args:
        spec: The run.
        world: The node's place in the world.
        local_rank: The rank's number on its node.
        attempt: The attempt's number, from 0.
        inherited: The variables of the supervisor.

    Returns:
        Name -> value; ``None`` removes an inherited variable.

    Raises:
        SpecificationError: The rank is to see a device of its own, and the list of visible ones is too short.
    """
    own = spec.envs or {}
    defaults = {"TORCH_NCCL_ASYNC_ERROR_HANDLING": "1"}
    if spec.local_world_size > 1:
        # Each rank would start a thread per CPU.
        defaults["OMP_NUM_THREADS"] = "1"
    variables: dict[str, EnvValue] = {
        name: value for name, value in defaults.items() if name not in inherited and name not in own
    }
    variables.update(own)
    variables.update(_identity(spec, world, local_rank, attempt))
    if spec.virtual_local_rank:
        variables["LOCAL_RANK"] = "0"
        variables[_DEVICES] = _own_device(own, local_rank, inherited)
    return variables


def rank_arguments(args: object, local_rank: int) -> tuple[Any, ...]:
    """Give a rank's arguments, with its number for ``${local_rank}`` in those that are text.

    Raises:
        SpecificationTypeError: They are no tuple, list or single argument.

    Example:
        >>> rank_arguments(("--out=log${local_rank}", "$HOME", 3), 1)
        ('--out=log1', '$HOME', 3)
    """
    return tuple(
        each.replace("${local_rank}", str(local_rank)) if isinstance(each, str) else each
        for each in one_or_many(args, local_rank)
    )


def rank_prefix(template: str | None, role: str, rank: int, local_rank: int) -> str:
    """Give what stands before a rank's lines on the console.

    Args:
        template: Text with ``${role_name}``, ``${rank}`` and ``${local_rank}``, or ``None`` for the usual.
        role: The role of the ranks.
        rank: The rank's number in the world.
        local_rank: Its number on its node.

    Example:
        >>> rank_prefix(None, "default", 5, 1), rank_prefix("${role_name}-${rank}: ", "trainer", 5, 1)
        ('[default1]:', 'trainer-5: ')
    """
    if template is None:
        return f"[{role}{local_rank}]:"
    return Template(template).safe_substitute(role_name=role, rank=rank, local_rank=local_rank)


def _identity(spec: WorkerSpec, world: WorldInfo, local_rank: int, attempt: int) -> dict[str, str]:
    """Give what says a rank's place; all ranks of a run have one role, so its numbers are the world's."""
    rank, world_size = str(world.base_rank + local_rank), str(world.world_size)
    address = world.master_addr if spec.master_addr is None else spec.master_addr
    port = world.master_port if spec.master_port is None else spec.master_port
    return {
        "LOCAL_RANK": str(local_rank),
        "RANK": rank,
        "GROUP_RANK": str(world.group_rank),
        "ROLE_RANK": rank,
        "ROLE_NAME": spec.role,
        "LOCAL_WORLD_SIZE": str(spec.local_world_size),
        "WORLD_SIZE": world_size,
        "GROUP_WORLD_SIZE": str(world.group_world_size),
        "ROLE_WORLD_SIZE": world_size,
        "MASTER_ADDR": checked_address("master_addr", address),
        "MASTER_PORT": str(port),
        "TORCHELASTIC_RESTART_COUNT": str(attempt),
        "TORCHELASTIC_MAX_RESTARTS": str(spec.max_restarts),
        "TORCHELASTIC_RUN_ID": world.run_id,
        # Rank 0 opens the store itself: there is none in the agent.
        "TORCHELASTIC_USE_AGENT_STORE": "False",
    }


def _own_device(own: Environment, local_rank: int, inherited: Mapping[str, str]) -> str:
    """Give the rank's entry of the list of visible devices, or its number where there is no list."""
    listed = own[_DEVICES] if _DEVICES in own else inherited.get(_DEVICES)
    if listed is None:
        return str(local_rank)
    text = os.fspath(listed) if isinstance(listed, os.PathLike) else str(listed)
    if not text.strip():
        # An empty list hides all devices: then there is none to choose from, and the ranks want none.
        return text
    devices = [device.strip() for device in text.split(",")]
    if local_rank >= len(devices):
        raise SpecificationError(
            f"rank {local_rank} is to see one device of its own, and {_DEVICES} lists {len(devices)}: "
            "list one for each rank, or start fewer ranks"
        )
    return devices[local_rank]
