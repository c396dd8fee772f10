"""The machine that the tests run on, whatever it is."""

import os

import pytest

from aioelastic._numa.errors import NumaBindingError
from aioelastic._numa.machine import read_machine
from aioelastic._numa.nvml import query_nvml
from aioelastic._numa.options import AffinityMode, NumaOptions
from aioelastic._numa.policy import plan_group


@pytest.mark.parametrize("mode", AffinityMode)
def test_its_cpus_are_given_to_ranks(mode: AffinityMode) -> None:
    """Two ranks without GPUs have CPUs that the kernel would bind them to, their own ones if they are exclusive."""
    allowed = os.sched_getaffinity(0)
    machine = read_machine({"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}, allowed, nvml=query_nvml)
    nprocs = min(2, len({min(cpu.core) for cpu in machine.topology.cpus if cpu.number in allowed}))

    chosen = plan_group(machine.topology, machine.devices, NumaOptions(mode), nprocs, allowed).cpus

    assert sorted(chosen) == list(range(nprocs))
    assert all(cpus and cpus <= allowed for cpus in chosen.values())
    if mode is AffinityMode.EXCLUSIVE:
        assert sum(map(len, chosen.values())) == len(frozenset[int]().union(*chosen.values()))


@pytest.mark.parametrize("mode", AffinityMode)
def test_one_of_its_cpus_is_enough(mode: AffinityMode) -> None:
    """In a cpuset of one CPU, one rank has that one, and two cannot have it exclusively."""
    only = max(os.sched_getaffinity(0))
    machine = read_machine({"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": ""}, [only])
    options = NumaOptions(mode)

    assert plan_group(machine.topology, machine.devices, options, 1, [only]).cpus == {0: {only}}
    if mode is AffinityMode.EXCLUSIVE:
        with pytest.raises(NumaBindingError):
            plan_group(machine.topology, machine.devices, options, 2, [only])
    else:
        assert plan_group(machine.topology, machine.devices, options, 2, [only]).cpus == {0: {only}, 1: {only}}
