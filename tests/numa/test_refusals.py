"""What cannot be bound, what little is enough, and what is said about it."""

from collections.abc import Callable
from pathlib import Path

import pytest

from aioelastic._numa.errors import NumaBindingError
from aioelastic._numa.options import AffinityMode
from tests.helpers.sysfs import (
    MachineTree,
    build_tree,
    cpus,
    epyc,
    look,
    minus_one,
    no_caches,
    no_gpu,
    no_memory,
    no_sysfs,
    odd_numbers,
    one_node,
    plan,
    two_sockets,
)


@pytest.mark.parametrize("mode", AffinityMode)
@pytest.mark.parametrize("build", [one_node, two_sockets, odd_numbers, minus_one, no_sysfs, no_caches])
def test_a_cpuset_of_one_cpu(tmp_path: Path, build: Callable[[Path], MachineTree], mode: AffinityMode) -> None:
    """With one CPU of node 0, every mode gives rank 0 that CPU, or says that GPUs cannot share it exclusively."""
    machine = look(build(tmp_path), "1")

    if mode is AffinityMode.EXCLUSIVE and sum(device.node == 0 for device in machine.devices) > 1:
        with pytest.raises(NumaBindingError, match="cannot share 1 allowed core exclusively"):
            plan(machine, mode, 1)
    else:
        assert plan(machine, mode, 1).cpus == {0: {1}}


@pytest.mark.parametrize("mode", [AffinityMode.NODE, AffinityMode.SOCKET, AffinityMode.CORE_COMPLEX])
def test_ranks_without_gpus_share_a_cpuset_of_one_cpu(tmp_path: Path, mode: AffinityMode) -> None:
    """Many ranks on one CPU all get it, except exclusively."""
    machine = look(no_gpu(tmp_path), "5")

    assert plan(machine, mode, 3).cpus == {0: {5}, 1: {5}, 2: {5}}


def test_more_ranks_than_cores_cannot_share_them_exclusively(tmp_path: Path) -> None:
    """Ranks without GPUs that are more than the cores are refused, and the first of them is named."""
    machine = look(no_sysfs(tmp_path), "0-1")

    with pytest.raises(NumaBindingError, match=r"rank 0 .*exclusive.*3 cannot share 2 allowed cores") as caught:
        plan(machine, "exclusive", 3)
    assert (caught.value.local_rank, caught.value.mode) == (0, "exclusive")


@pytest.mark.parametrize("mode", AffinityMode)
def test_a_gpu_on_a_node_without_cpus_cannot_be_served(tmp_path: Path, mode: AffinityMode) -> None:
    """The ranks of the other GPUs are bound, with a fall-back; without one the group is refused."""
    tree = no_memory(tmp_path)
    tree.add_node(2, [])
    tree.add_gpus([0, 1, 2])
    machine = look(tree, "0-3")

    binding = plan(machine, mode, 3, fall_back=True)

    assert sorted(binding.cpus) == [0, 1]
    assert binding.ranks[2].cpus is None
    assert "GPU 2 (nvidia 0000:03:00.0) is on node 2, which has no CPU that is allowed" in binding.explanation
    with pytest.raises(NumaBindingError, match="rank 2 "):
        plan(machine, mode, 3)


def test_ranks_without_gpus_never_go_to_a_node_without_cpus(tmp_path: Path) -> None:
    """Nodes of memory only are left out of the spread, nodes of CPUs only are not."""
    tree = no_memory(tmp_path)
    tree.add_node(2, [])
    machine = look(tree, "0-3", CUDA_VISIBLE_DEVICES="")

    assert plan(machine, "node", 4).cpus == {0: {0, 1}, 1: {0, 1}, 2: {2, 3}, 3: {2, 3}}


def test_a_forbidden_node_may_have_an_allowed_socket(tmp_path: Path) -> None:
    """When nothing of the GPU's node is allowed, its socket's other nodes are still near."""
    machine = look(epyc(tmp_path), "0-15")

    assert plan(machine, "socket", 1).cpus == {0: cpus("0-15")}
    with pytest.raises(NumaBindingError, match=r"GPU 0 .* is on node 1, which has no CPU that is allowed"):
        plan(machine, "node", 1)


def test_a_node_over_two_sockets_is_on_that_of_its_first_cpu(tmp_path: Path) -> None:
    """As in torch; the other socket's own nodes do not come along."""
    tree = build_tree(tmp_path, sockets=2, cores=3)
    tree.remove("devices/system/node")
    for number, members in enumerate(([0, 1], [2, 3], [4, 5])):
        tree.add_node(number, members)
    tree.add_gpus([1])

    assert plan(look(tree, "0-5"), "socket", 1).cpus == {0: {0, 1, 2, 3}}


def test_gpus_without_a_rank_keep_their_share(tmp_path: Path) -> None:
    """One rank on a node with two GPUs gets half of the node exclusively."""
    assert plan(look(one_node(tmp_path), "0-3"), "exclusive", 1).cpus == {0: {0, 1}}


def test_hidden_gpus_have_no_share(tmp_path: Path) -> None:
    """A GPU that cannot be seen is nobody's, and indices are those of the list."""
    machine = look(two_sockets(tmp_path), "0-15", CUDA_VISIBLE_DEVICES="2,0,1")

    assert plan(machine, "exclusive", 2).cpus == {0: cpus("4-7,12-15"), 1: cpus("0-1,8-9")}
    assert [device.address for device in machine.hidden] == ["0000:04:00.0"]


def test_a_rank_without_a_gpu_among_others_with_one_is_refused(tmp_path: Path) -> None:
    """As in torch, the index has to exist; the error says how to run without GPUs."""
    machine = look(one_node(tmp_path), "0-3")

    with pytest.raises(NumaBindingError, match=r"rank 2 .*only 2 can be seen; .*CUDA_VISIBLE_DEVICES"):
        plan(machine, "node", 3)


@pytest.mark.parametrize("mode", AffinityMode)
def test_a_group_of_no_ranks_needs_nothing(tmp_path: Path, mode: AffinityMode) -> None:
    """No rank, no decision, no error."""
    assert plan(look(no_sysfs(tmp_path), ""), mode, 0).cpus == {}


@pytest.mark.parametrize("build", [one_node, no_sysfs])
@pytest.mark.parametrize("mode", AffinityMode)
def test_nothing_allowed_is_an_error(tmp_path: Path, build: Callable[[Path], MachineTree], mode: AffinityMode) -> None:
    """Without a CPU that may be used there is nothing to choose from."""
    with pytest.raises(NumaBindingError, match=r"none of the \d CPUs of this machine is allowed"):
        plan(look(build(tmp_path), ""), mode, 1)


def test_a_node_that_is_not_shown_is_an_error(tmp_path: Path) -> None:
    """A GPU on a node that the machine hides, while it shows others, is not put anywhere else."""
    tree = build_tree(tmp_path, sockets=2)
    tree.add_gpus([5])

    with pytest.raises(NumaBindingError, match="is on node 5, and the nodes shown are 0-1"):
        plan(look(tree, "0-7"), "node", 1)


def test_an_unreadable_node_of_a_gpu(tmp_path: Path) -> None:
    """It does not matter on one node, and is an error with a remedy on several."""
    single, several = build_tree(tmp_path / "1"), build_tree(tmp_path / "2", sockets=2)
    for tree in (single, several):
        tree.add_gpus([0])
        tree.remove("bus/pci/devices/*/numa_node")

    assert plan(look(single, "0-3"), "node", 1).cpus == {0: cpus("0-3")}
    with pytest.raises(NumaBindingError, match=r"the node of GPU 0 .* cannot be read; install nvidia-ml-py"):
        plan(look(several, "0-7"), "node", 1)


def test_what_was_asked_and_found_is_said(tmp_path: Path) -> None:
    """The explanation names mode, machine, and each rank's GPU, node and CPUs."""
    binding = plan(look(two_sockets(tmp_path), "0-15"), "exclusive", 2)

    share = "2 of its 4 allowed cores, shared exclusively by 2"
    assert binding.explanation.splitlines() == [
        "asked: NUMA mode exclusive for 2 ranks",
        "found: 2 nodes, 2 sockets, 8 cores, 16 CPUs (16 allowed: 0-15), 4 GPUs (nvidia)",
        f"rank 0: CPUs 0-1,8-9: GPU 0 (nvidia 0000:01:00.0) is on node 0; {share}",
        f"rank 1: CPUs 2-3,10-11: GPU 1 (nvidia 0000:02:00.0) is on node 0; {share}",
    ]


def test_what_was_missing_is_said_with_the_rest(tmp_path: Path) -> None:
    """On half a sysfs the explanation names what was taken in place of what, and who stays unbound."""
    binding = plan(look(no_sysfs(tmp_path), "2"), "exclusive", 2, fall_back=True)

    assert binding.explanation.splitlines() == [
        "asked: NUMA mode exclusive for 2 ranks",
        "found: 1 node, sockets not known, 1 core, 1 CPU (1 allowed: 2), no GPU",
        "note: the list of online CPUs is missing: no CPU is shown",
        "note: no NUMA nodes are shown: all CPUs are taken for node 0",
        "note: the socket is not known of CPUs 2",
        "note: the hyper-threads are not known of CPUs 2",
        "note: the caches are not known of CPUs 2",
        *(
            f"rank {rank}: not bound: no GPU, spread to node 0, and 2 cannot share 1 allowed core exclusively"
            for rank in (0, 1)
        ),
    ]
