"""How many ranks ``--nproc-per-node`` means: a number, or as many as there are CPUs or accelerators."""

import os
import resource
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from aioelastic._base.counts import counted
from aioelastic._errors.exceptions import SpecificationError

if TYPE_CHECKING:
    from aioelastic._numa.machine import Machine

_GPUS = {"nvidia", "amd"}
"""Makers of what torch calls a GPU: CUDA's, and AMD's, which go by the same name there."""


def look_at_machine(environ: Mapping[str, str]) -> "Machine":
    """Look at this machine, with the accelerators that its variables leave visible."""
    # A command line starts in a tenth of a second, of which these would be some, and most say a number.
    from aioelastic._numa.machine import read_machine  # noqa: PLC0415
    from aioelastic._numa.nvml import query_nvml  # noqa: PLC0415

    return read_machine(environ, own_cpus(), nvml=query_nvml)


def own_cpus() -> frozenset[int]:
    """Give the CPUs that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return frozenset(os.sched_getaffinity(0))
    return frozenset(range(os.cpu_count() or 1))


def count_ranks(
    asked: int | str, environ: Mapping[str, str], look: "Callable[[Mapping[str, str]], Machine]" = look_at_machine
) -> tuple[int, tuple[str, ...]]:
    """Give the number of ranks on this node.

    Args:
        asked: A number, or ``auto``, ``cpu``, ``gpu`` or ``xpu``.
        environ: The variables that hide accelerators.
        look: Looks at the machine; only asked when accelerators matter.

    Returns:
        The number, and remarks on how it was found.

    Raises:
        SpecificationError: There is no accelerator of the kind asked for, or the number is beyond all limits.
    """
    if isinstance(asked, int):
        _require_descriptors(asked)
        return asked, ()
    if asked == "cpu":
        return _counted(asked, len(own_cpus()), "CPU")
    machine = look(environ)
    # Those of the topology matter when ranks are bound, and are told then.
    notes = machine.notes[len(machine.topology.notes) :]
    kinds = {"gpu": _GPUS, "xpu": {"intel"}}.get(asked)
    devices = [each for each in machine.devices if kinds is None or each.vendor in kinds]
    if asked == "xpu":
        # Next to another vendor's they are not what is taken for the ranks' devices; they are there, though.
        devices = [each for each in (*machine.devices, *machine.hidden) if each.vendor == "intel"]
    if devices:
        number, more = _counted(asked, len(devices), "accelerator" if kinds is None else asked.upper())
        return number, (*notes, *more)
    if kinds is not None:
        raise SpecificationError(_none_found(asked, kinds, machine, environ))
    number, more = _counted(asked, len(machine.allowance), "CPU")
    return number, (*notes, *more)


def _require_descriptors(number: int) -> None:
    """Refuse a number that can be nothing but a slip, before anything is made for each rank.

    What a group needs in all, its streams included, is compared with the limit when it starts.
    """
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and number > limit:
        raise SpecificationError(
            f"--nproc-per-node {number} needs more than {number} open files and the limit is {limit}: give fewer, "
            "or raise it (ulimit -n)"
        )


def _counted(asked: str, number: int, of: str) -> tuple[int, tuple[str, ...]]:
    return number, (f"--nproc-per-node {asked}: {counted(number, 'rank')}, one per {of}",)


def _none_found(asked: str, kinds: set[str], machine: "Machine", environ: Mapping[str, str]) -> str:
    hidden = sum(each.vendor in kinds for each in machine.hidden)
    variables = ("CUDA_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES")
    hiding = " ".join(f"{name}={environ[name]}" for name in variables if name in environ)
    found = f"all {hidden} are hidden by {hiding}" if hidden and hiding else "none is found (see aioelastic numa)"
    return f"--nproc-per-node {asked} asks for one rank per {asked.upper()}, and {found}: give a number, cpu or auto"
