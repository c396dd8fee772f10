"""The machine in one look: CPUs, accelerators, and which of both are ours."""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aioelastic._numa.devices import Accelerator, read_accelerators
from aioelastic._numa.nvml import NvmlQuery, complete_by_nvml
from aioelastic._numa.topology import Topology, read_topology
from aioelastic._numa.visible import select_visible


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What ranks can be bound to.

    Attributes:
        topology: CPUs, nodes, sockets, cores, caches.
        devices: The visible accelerators; the one with index r is rank r's.
        allowance: The CPUs that the supervisor may use.
        hidden: Accelerators that are there and not visible, or not the ranks'.
        notes: What is missing, uncertain, or taken in place of something else, in words.
    """

    topology: Topology
    devices: tuple[Accelerator, ...]
    allowance: frozenset[int]
    hidden: tuple[Accelerator, ...] = ()
    notes: tuple[str, ...] = ()


def read_machine(
    environ: Mapping[str, str],
    allowance: Iterable[int],
    *,
    sys_root: str | os.PathLike[str] = "/sys",
    proc_root: str | os.PathLike[str] = "/proc",
    nvml: NvmlQuery | None = None,
) -> Machine:
    """Look at the machine's CPUs and accelerators; no part of it has to be there.

    It reads files and may wait for NVIDIA's library: not for an event loop.

    Args:
        environ: The variables that hide accelerators, those of the ranks.
        allowance: The CPUs that the supervisor may use (``os.sched_getaffinity(0)``).
        sys_root: Where sysfs is.
        proc_root: Where procfs is.
        nvml: Asks NVIDIA's library (`query_nvml`), when the files leave something open; ``None`` to ask nobody.

    Returns:
        The machine.

    Example:
        >>> from aioelastic._numa.machine import read_machine
        >>> machine = read_machine({}, {0, 1}, sys_root="/no/such/place", proc_root="/no/such/place")
        >>> sorted(machine.topology.online), machine.devices
        ([0, 1], ())
    """
    allowed = frozenset(allowance)
    topology = read_topology(sys_root, known_cpus=allowed)
    accelerators = read_accelerators(sys_root, proc_root)
    driver_is_there = Path(proc_root, "driver/nvidia").is_dir()
    if nvml is not None and _leaves_open(accelerators, environ, driver_is_there=driver_is_there):
        accelerators = complete_by_nvml(accelerators, nvml())
    visible = select_visible(accelerators, environ)
    return Machine(
        topology=topology,
        devices=visible.devices,
        allowance=allowed,
        hidden=tuple(each for each in accelerators if each.address not in {one.address for one in visible.devices}),
        notes=(*topology.notes, *visible.notes),
    )


def _leaves_open(accelerators: Iterable[Accelerator], environ: Mapping[str, str], *, driver_is_there: bool) -> bool:
    """Tell whether the files say too little about NVIDIA's GPUs."""
    gpus = [each for each in accelerators if each.vendor == "nvidia"]
    listed = environ.get("CUDA_VISIBLE_DEVICES", "")
    if not gpus:
        return driver_is_there
    return (
        any(gpu.node is None for gpu in gpus)
        or listed.startswith("MIG-")
        or (listed.startswith("GPU-") and not all(gpu.uuid for gpu in gpus))
    )
