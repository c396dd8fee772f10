"""``aioelastic numa``: the machine as the library sees it, and which CPUs ranks would get."""

import argparse
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from aioelastic._cli.device_counts import look_at_machine
from aioelastic._numa.cpu_lists import format_cpu_list
from aioelastic._numa.machine import Machine
from aioelastic._numa.options import AffinityMode, NumaOptions
from aioelastic._numa.policy import plan_group
from aioelastic._numa.words import describe_device, describe_found, describe_node

if TYPE_CHECKING:
    from argparse import _SubParsersAction


def add_to(subcommands: "_SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add this subcommand to the command line."""
    parser = subcommands.add_parser(
        "numa",
        help="show the machine's NUMA nodes and the CPUs that ranks would be bound to",
        description="Show CPUs, NUMA nodes and accelerators as aioelastic sees them, and which CPUs each rank would be "
        "bound to in each mode of NumaOptions. Nothing is bound, and nothing is started.",
    )
    parser.add_argument(
        "-n",
        "--nproc-per-node",
        "--nproc_per_node",
        type=_ranks,
        metavar="N",
        help="the number of ranks; by default one per accelerator, or without any, one per node",
    )
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> int:
    machine = look_at_machine(os.environ)
    nprocs = options.nproc_per_node or len(machine.devices) or len(machine.topology.nodes)
    for line in describe_machine(machine, nprocs):
        print(line)  # noqa: T201 - what the command is for
    return 0


def describe_machine(machine: Machine, nprocs: int) -> Iterator[str]:
    """Give what the command prints, line by line.

    Args:
        machine: The machine.
        nprocs: The number of ranks.
    """
    yield describe_found(machine.topology, machine.devices, machine.allowance)
    for node in machine.topology.nodes:
        yield f"  {describe_node(node)}"
    for index, device in enumerate(machine.devices):
        yield f"  {describe_device(index, device)}: node {'not known' if device.node is None else device.node}"
    for device in machine.hidden:
        yield f"  hidden: {device.vendor} {device.address or device.uuid}"
    for note in machine.notes:
        yield f"  note: {note}"
    yield ""
    yield from _table(machine, nprocs)


def _table(machine: Machine, nprocs: int) -> Iterator[str]:
    columns: list[Sequence[str]] = [["rank", *map(str, range(nprocs))]]
    problems: dict[str, None] = {}
    for mode in AffinityMode:
        options = NumaOptions(mode, should_fall_back_if_binding_fails=True)
        plan = plan_group(machine.topology, machine.devices, options, nprocs, machine.allowance)
        cells = ["not bound" if rank.cpus is None else format_cpu_list(rank.cpus) for rank in plan.ranks]
        columns.append([str(mode), *cells])
        problems.update((str(rank.error), None) for rank in plan.ranks if rank.error is not None)
    widths = [max(map(len, column)) for column in columns]
    for row in zip(*columns, strict=True):
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
    if problems:
        yield ""
        yield from problems


def _ranks(text: str) -> int:
    if not (text.isascii() and text.isdecimal()) or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of ranks: give 1 or more")
    return int(text)
