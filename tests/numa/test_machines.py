"""Whole machines, from their files to the CPUs of each rank, worked out by hand."""

import functools
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from aioelastic._numa.options import AffinityMode
from tests.helpers.sysfs import (
    MachineTree,
    cpus,
    eight_gpus,
    epyc,
    interleaved_gpus,
    look,
    minus_one,
    no_caches,
    no_gpu,
    no_memory,
    no_node_directory,
    no_sysfs,
    odd_numbers,
    offline_cpus,
    one_node,
    plan,
    two_sockets,
)


class Case(NamedTuple):
    """A machine, the CPUs that may be used, and the CPUs of each rank by mode."""

    build: Callable[[Path], MachineTree]
    allowed: str
    node: list[str]
    socket: list[str]
    exclusive: list[str]
    core_complex: list[str]


CASES = [
    Case(
        one_node,
        "0-3",
        node=["0-3", "0-3"],
        socket=["0-3", "0-3"],
        exclusive=["0-1", "2-3"],
        core_complex=["0-3", "0-3"],
    ),
    Case(
        two_sockets,
        "0-15",
        node=["0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"],
        socket=["0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"],
        exclusive=["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"],
        core_complex=["0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"],
    ),
    Case(  # the same machine, with core 0, a thread of core 1 and half of the second socket forbidden
        two_sockets,
        "1-3,10-11,4-5,12",
        node=["1-3,10-11", "1-3,10-11", "4-5,12", "4-5,12"],
        socket=["1-3,10-11", "1-3,10-11", "4-5,12", "4-5,12"],
        exclusive=["1-2,10", "3,11", "4,12", "5"],
        core_complex=["1-3,10-11", "1-3,10-11", "4-5,12", "4-5,12"],
    ),
    Case(
        epyc,
        "0-127",
        node=["16-31", "16-31", "80-95", "112-127"],
        socket=["0-63", "0-63", "64-127", "64-127"],
        exclusive=["16-23", "24-31", "80-95", "112-127"],
        core_complex=["16-23", "24-31", "80-87", "112-119"],
    ),
    Case(  # the complex with more allowed CPUs comes first, whatever its number
        epyc,
        "20-31,64-95,127",
        node=["20-31", "20-31", "80-95", "127"],
        socket=["20-31", "20-31", "64-95,127", "64-95,127"],
        exclusive=["20-25", "26-31", "80-95", "127"],
        core_complex=["24-31", "20-23", "80-87", "127"],
    ),
    Case(
        eight_gpus,
        "0-19",
        node=["0-9"] * 4 + ["10-19"] * 4,
        socket=["0-9"] * 4 + ["10-19"] * 4,
        exclusive=["0-2", "3-5", "6-7", "8-9", "10-12", "13-15", "16-17", "18-19"],
        core_complex=["0-4", "5-9", "0-4", "5-9", "10-14", "15-19", "10-14", "15-19"],
    ),
    Case(
        interleaved_gpus,
        "0-5",
        node=["3-5", "0-2", "3-5", "0-2"],
        socket=["3-5", "0-2", "3-5", "0-2"],
        exclusive=["3-4", "0-1", "5", "2"],
        core_complex=["3-5", "0-2", "3-5", "0-2"],
    ),
    Case(
        odd_numbers,
        "0-13",
        node=["0-13"] * 3,
        socket=["0-13"] * 3,
        exclusive=["0-2,7-9", "3-4,10-11", "5-6,12-13"],
        core_complex=["0-3,7-10", "4-6,11-13", "0-3,7-10"],
    ),
    Case(
        offline_cpus,
        "0,2-8,11-15",
        node=["0,2-3,8,11"] * 2,
        socket=["0,2-3,8,11"] * 2,
        exclusive=["0,2,8", "3,11"],
        core_complex=["0,2-3,8,11"] * 2,
    ),
    Case(
        no_memory,
        "0-3",
        node=["0-1", "2-3"],
        socket=["0-3", "0-3"],
        exclusive=["0-1", "2-3"],
        core_complex=["0-1", "2-3"],
    ),
    Case(
        minus_one,
        "0-3",
        node=["0-1", "0-1"],
        socket=["0-1", "0-1"],
        exclusive=["0", "1"],
        core_complex=["0-1", "0-1"],
    ),
    Case(  # four ranks on four nodes
        no_gpu,
        "0-15",
        node=["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"],
        socket=["0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15"],
        exclusive=["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"],
        core_complex=["0-1,8-9", "2-3,10-11", "4-5,12-13", "6-7,14-15"],
    ),
    Case(  # two ranks on four nodes are on different sockets
        no_gpu,
        "0-15",
        node=["0-1,8-9", "4-5,12-13"],
        socket=["0-3,8-11", "4-7,12-15"],
        exclusive=["0-1,8-9", "4-5,12-13"],
        core_complex=["0-1,8-9", "4-5,12-13"],
    ),
    Case(  # six ranks: the cores 0-7 in six stretches have their middles in cores 0, 1, 3, 4, 5, 7
        no_gpu,
        "0-15",
        node=["0-1,8-9", "0-1,8-9", "2-3,10-11", "4-5,12-13", "4-5,12-13", "6-7,14-15"],
        socket=["0-3,8-11", "0-3,8-11", "0-3,8-11", "4-7,12-15", "4-7,12-15", "4-7,12-15"],
        exclusive=["0,8", "1,9", "2-3,10-11", "4,12", "5,13", "6-7,14-15"],
        core_complex=["0-1,8-9", "0-1,8-9", "2-3,10-11", "4-5,12-13", "4-5,12-13", "6-7,14-15"],
    ),
    Case(  # hardly anything of node 0 and nothing of node 1 is allowed
        no_gpu,
        "0,4-7",
        node=["0", "4-5", "6-7"],
        socket=["0", "4-7", "4-7"],
        exclusive=["0", "4-5", "6-7"],
        core_complex=["0", "4-5", "6-7"],
    ),
    Case(
        no_caches,
        "0-3",
        node=["0-1", "2-3"],
        socket=["0-3", "0-3"],
        exclusive=["0-1", "2-3"],
        core_complex=["0-1", "2-3"],
    ),
    Case(
        no_sysfs,
        "4-7",
        node=["4-7", "4-7", "4-7"],
        socket=["4-7", "4-7", "4-7"],
        exclusive=["4-5", "6", "7"],
        core_complex=["4-7", "4-7", "4-7"],
    ),
    Case(
        no_node_directory,
        "0-3",
        node=["0-3", "0-3"],
        socket=["0-3", "0-3"],
        exclusive=["0-1", "2-3"],
        core_complex=["0-1", "2-3"],
    ),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Case], MachineTree]:
    """Give the tree of a case, each built once: the largest has thousands of files."""

    @functools.cache
    def build(builder: Callable[[Path], MachineTree]) -> MachineTree:
        return builder(tmp_path_factory.mktemp(builder.__name__))

    return lambda case: build(case.build)


@pytest.mark.parametrize("mode", AffinityMode)
@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.build.__name__}-{case.allowed}-{len(case.node)}")
def test_each_rank_gets_what_was_worked_out_by_hand(
    built: Callable[[Case], MachineTree], case: Case, mode: AffinityMode
) -> None:
    """For each machine, mode and rank the CPUs are exactly these."""
    expected: list[str] = getattr(case, mode.name.lower())

    binding = plan(look(built(case), case.allowed), mode, len(expected))

    assert binding.cpus == {rank: cpus(text) for rank, text in enumerate(expected)}
