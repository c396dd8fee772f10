"""The CPUs of a machine, read from trees of which parts are missing or strange."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from aioelastic._numa.topology import Cpu, Topology, read_topology
from tests.helpers.nobody import said_by_nobody
from tests.helpers.sysfs import MachineTree, build_tree, cpus

CPU = "devices/system/cpu"
NODE = "devices/system/node"


def attribute(topology: Topology, name: str) -> dict[int, object]:
    """Give one attribute of each CPU."""
    return {cpu.number: getattr(cpu, name) for cpu in topology.cpus}


def members(topology: Topology) -> dict[int, set[int]]:
    """Give the CPUs of each node."""
    return {node.number: set(node.cpus) for node in topology.nodes}


def without(tree: MachineTree, *patterns: str, known: Iterable[int] = ()) -> Topology:
    """Read a tree from which something is removed."""
    tree.remove(*patterns)
    return read_topology(tree.sys, known_cpus=known)


def test_a_whole_machine_is_read(tmp_path: Path) -> None:
    """Nodes, sockets, cores and caches are where the files say, and there is nothing to note."""
    topology = read_topology(build_tree(tmp_path, sockets=2, nodes=2, cores=4, threads=2, per_cache=2).sys)

    assert topology.online == cpus("0-31")
    assert topology.sockets == (0, 1)
    assert members(topology) == {
        0: cpus("0-3,16-19"),
        1: cpus("4-7,20-23"),
        2: cpus("8-11,24-27"),
        3: cpus("12-15,28-31"),
    }
    assert topology.cpus[21] == Cpu(number=21, node=1, socket=0, core=cpus("5,21"), core_complex=cpus("4-5,20-21"))
    assert all(node.has_memory for node in topology.nodes)
    assert (topology.offline, topology.notes, topology.shows_nodes) == (frozenset(), (), True)


def test_offline_cpus_are_known_and_nowhere(tmp_path: Path) -> None:
    """A CPU that does not run is on no node and in no core; one that could be plugged in is not there at all."""
    tree = build_tree(tmp_path, cores=3, threads=2, offline=[1, 5])
    tree.write(tree.cpu / "offline", "1,5-127")
    tree.write(tree.cpu / "present", "0-5")

    topology = read_topology(tree.sys)

    assert topology.online == cpus("0,2-4")
    assert topology.offline == {1, 5}
    assert attribute(topology, "core") == {0: {0, 3}, 2: {2}, 3: {0, 3}, 4: {4}}
    assert members(topology) == {0: cpus("0,2-4")}


def test_lists_of_cpus_may_be_missing(tmp_path: Path) -> None:
    """Without the lists, each CPU's own file tells; the first CPU has none."""
    tree = build_tree(tmp_path, cores=4, offline=[2])

    topology = without(tree, f"{CPU}/online", f"{CPU}/offline", f"{CPU}/present")

    assert topology.online == cpus("0-1,3")
    assert topology.offline == {2}
    assert topology.notes == ("the list of online CPUs is missing: each was looked at",)


@pytest.mark.parametrize("listed", ["0-1", "", "garbage", "0-99999999999"])
def test_a_container_may_make_numbers_up(tmp_path: Path, listed: str) -> None:
    """CPUs that the kernel lets the process use are online, whatever a made-up list says."""
    tree = build_tree(tmp_path, sockets=2, cores=4)
    tree.write(tree.cpu / "online", listed)

    topology = read_topology(tree.sys, known_cpus=[5, 6])

    assert topology.online >= {5, 6}
    assert {5, 6} <= members(topology)[1]
    assert len(topology.notes) == 1


def test_no_sysfs(tmp_path: Path) -> None:
    """What is known is all on one node, each CPU a core, all of them one complex."""
    topology = read_topology(tmp_path / "missing", known_cpus=[2, 3])

    assert [(cpu.node, cpu.socket) for cpu in topology.cpus] == [(0, None), (0, None)]
    assert attribute(topology, "core") == {2: {2}, 3: {3}}
    assert attribute(topology, "core_complex") == {2: {2, 3}, 3: {2, 3}}
    assert (topology.shows_nodes, topology.sockets) == (False, ())
    assert topology.notes == (
        "the list of online CPUs is missing: no CPU is shown",
        "no NUMA nodes are shown: all CPUs are taken for node 0",
        "the socket is not known of CPUs 2-3",
        "the hyper-threads are not known of CPUs 2-3",
        "the caches are not known of CPUs 2-3",
    )


def test_no_sysfs_and_nothing_known(tmp_path: Path) -> None:
    """There is one node, and nothing on it."""
    topology = read_topology(tmp_path)

    assert (topology.cpus, members(topology)) == ((), {0: set()})


class TestNodes:
    """Nodes."""

    def test_without_a_directory_there_is_node_0(self, tmp_path: Path) -> None:
        """All CPUs are on it, and sockets and caches stay what they are."""
        topology = without(build_tree(tmp_path, sockets=2, cores=2), NODE)

        assert members(topology) == {0: {0, 1, 2, 3}}
        assert attribute(topology, "socket") == {0: 0, 1: 0, 2: 1, 3: 1}
        assert not topology.shows_nodes

    def test_an_empty_directory_is_as_good_as_none(self, tmp_path: Path) -> None:
        """A kernel without NUMA support shows no nodes."""
        assert members(without(build_tree(tmp_path), f"{NODE}/node*")) == {0: {0, 1, 2, 3}}

    @pytest.mark.parametrize("text", [None, "what", "0-"])
    def test_links_stand_in_for_a_list(self, tmp_path: Path, text: str | None) -> None:
        """A node's directory also links to its CPUs."""
        tree = build_tree(tmp_path, sockets=2, cores=2)
        tree.remove(f"{NODE}/node1/cpulist")
        if text:
            tree.write(tree.node / "node1/cpulist", text)

        topology = read_topology(tree.sys)

        assert members(topology) == {0: {0, 1}, 1: {2, 3}}
        assert topology.notes == ("the CPUs of node 1 are not listed: its links are taken",)

    def test_each_cpu_is_on_one_node(self, tmp_path: Path) -> None:
        """What two nodes list is the first one's; what none lists, and what is offline, is noted or left out."""
        tree = build_tree(tmp_path, sockets=2, cores=3)
        tree.write(tree.node / "node0/cpulist", "0-1")
        tree.write(tree.node / "node1/cpulist", "1,3-4,77")

        topology = read_topology(tree.sys)

        assert members(topology) == {0: {0, 1, 2, 5}, 1: {3, 4}}
        assert topology.notes == ("CPUs 2,5 are on no node: they are taken for node 0",)

    def test_numbers_of_nodes_may_have_gaps(self, tmp_path: Path) -> None:
        """Nodes keep their numbers, in the order of numbers; other entries are no nodes."""
        tree = MachineTree(tmp_path)
        tree.add_online(range(4))
        tree.add_node(16, [0, 1])
        tree.add_node(8, [2, 3])
        tree.write(tree.node / "node01/cpulist", "0-3")
        tree.write(tree.node / "nodes/cpulist", "0-3")

        assert members(read_topology(tree.sys)) == {8: {2, 3}, 16: {0, 1}}

    @pytest.mark.parametrize("removed", [[], [f"{NODE}/has_memory"]])
    def test_nodes_without_memory_or_cpus(self, tmp_path: Path, removed: list[str]) -> None:
        """The list of nodes with memory tells, and in its absence each node's own account."""
        tree = MachineTree(tmp_path)
        tree.add_online(range(4))
        tree.add_node(0, [0, 1])
        tree.add_node(1, [2, 3], memory=False)
        tree.add_node(2, [])

        topology = without(tree, *removed)

        assert [node.has_memory for node in topology.nodes] == [True, False, True]
        assert members(topology)[2] == set()

    def test_memory_is_assumed(self, tmp_path: Path) -> None:
        """Without any account of memory, a node has some."""
        topology = without(build_tree(tmp_path), f"{NODE}/has_memory", f"{NODE}/node0/meminfo")

        assert topology.nodes[0].has_memory


class TestCores:
    """Sockets and physical cores."""

    @pytest.mark.parametrize("text", ["-1", "", "one"])
    def test_an_unknown_socket_is_none(self, tmp_path: Path, text: str) -> None:
        """Some platforms say -1."""
        tree = build_tree(tmp_path, cores=2)
        for number in (0, 1):
            tree.write(tree.cpu / f"cpu{number}/topology/physical_package_id", text)

        topology = read_topology(tree.sys)

        assert attribute(topology, "socket") == {0: None, 1: None}
        assert topology.notes == ("the socket is not known of CPUs 0-1",)

    def test_the_newer_name_of_siblings_is_known(self, tmp_path: Path) -> None:
        """A kernel may have only the newer of the two files."""
        tree = build_tree(tmp_path, cores=1, threads=2)
        for number in (0, 1):
            topology = tree.cpu / f"cpu{number}/topology"
            (topology / "thread_siblings_list").rename(topology / "core_cpus_list")

        assert attribute(read_topology(tree.sys), "core") == {0: {0, 1}, 1: {0, 1}}

    @pytest.mark.parametrize("text", ["", "7", "garbage"])
    def test_a_core_without_itself_is_itself(self, tmp_path: Path, text: str) -> None:
        """Siblings that do not include the CPU are no siblings."""
        tree = build_tree(tmp_path, cores=2)
        tree.write(tree.cpu / "cpu1/topology/thread_siblings_list", text)

        topology = read_topology(tree.sys)

        assert attribute(topology, "core") == {0: {0}, 1: {1}}
        assert topology.notes == ("the hyper-threads are not known of CPUs 1",)


class TestCaches:
    """Core complexes."""

    def test_the_highest_level_counts_in_any_order(self, tmp_path: Path) -> None:
        """Instruction caches never count, whatever their level."""
        tree = build_tree(tmp_path, cores=4, per_cache=2)
        tree.add_cache(10, 4, "Instruction", [0, 1, 2, 3])
        tree.add_cache(9, 2, "Unified", [0])

        assert attribute(read_topology(tree.sys), "core_complex") == {0: {0, 1}, 1: {0, 1}, 2: {2, 3}, 3: {2, 3}}

    def test_a_data_cache_may_be_the_highest(self, tmp_path: Path) -> None:
        """Without a third level, a core's own data cache is its complex, as it is in torch."""
        topology = without(build_tree(tmp_path, cores=2, threads=2), f"{CPU}/cpu*/cache/index3")

        assert attribute(topology, "core_complex") == {0: {0, 2}, 1: {1, 3}, 2: {0, 2}, 3: {1, 3}}

    def test_of_two_caches_of_a_level_the_first_counts(self, tmp_path: Path) -> None:
        """As in torch, another one of the highest level changes nothing."""
        tree = build_tree(tmp_path, cores=2)
        tree.add_cache(4, 3, "Data", [0])

        assert attribute(read_topology(tree.sys), "core_complex") == {0: {0, 1}, 1: {0, 1}}

    @pytest.mark.parametrize("name", ["type", "level", "shared_cpu_list"])
    def test_half_a_cache_makes_all_of_them_unknown(self, tmp_path: Path, name: str) -> None:
        """A lower cache does not pass for the highest: the CPUs of socket and node are the complex."""
        topology = without(build_tree(tmp_path, nodes=2, cores=2), f"{CPU}/cpu*/cache/index3/{name}")

        assert attribute(topology, "core_complex") == {0: {0, 1}, 1: {0, 1}, 2: {2, 3}, 3: {2, 3}}
        assert topology.notes == ("the caches are not known of CPUs 0-3",)

    def test_a_node_over_two_sockets_has_a_complex_on_each(self, tmp_path: Path) -> None:
        """Without caches, a complex does not reach over to another socket either."""
        topology = without(build_tree(tmp_path, sockets=2, cores=2), f"{CPU}/cpu*/cache", NODE)

        assert attribute(topology, "core_complex") == {0: {0, 1}, 1: {0, 1}, 2: {2, 3}, 3: {2, 3}}


@pytest.mark.parametrize("kind", ["directory", "binary", "loop"])
@pytest.mark.parametrize(
    "path", [f"{CPU}/online", f"{NODE}/node0/cpulist", f"{CPU}/cpu0/topology/thread_siblings_list", NODE, CPU]
)
def test_nothing_in_a_tree_can_break_reading(tmp_path: Path, path: str, kind: str) -> None:
    """Directories for files, files for directories, bytes that are no text, and links in a circle are as if missing."""
    tree = build_tree(tmp_path, cores=2)
    tree.remove(path)
    broken = tree.sys / path
    if kind == "directory":
        broken.mkdir()
    elif kind == "binary":
        broken.write_bytes(b"\xff\x00\n")
    else:
        broken.symlink_to(broken)

    topology = read_topology(tree.sys, known_cpus=[0, 1])

    assert topology.online == {0, 1}
    assert members(topology) == {0: {0, 1}}


def test_unreadable_files_are_as_if_missing(open_directory: Path) -> None:
    """A restricted container may show files that cannot be read."""
    tree = build_tree(open_directory, cores=2)
    for path in (tree.cpu / "online", tree.cpu / "cpu0/topology/physical_package_id", tree.node / "node0/cpulist"):
        path.chmod(0)

    said = said_by_nobody(
        "from aioelastic._numa.topology import read_topology",
        f"print(*read_topology({str(tree.sys)!r}, known_cpus=[0, 1]).notes, sep='\\n')",
    )

    assert said.splitlines() == [
        "the list of online CPUs is missing: each was looked at",
        "the CPUs of node 0 are not listed: its links are taken",
        "the socket is not known of CPUs 0",
    ]


def test_this_machine_is_read() -> None:
    """On a real machine, every CPU that we may use is online, on a node, and in a core and a complex of its node."""
    allowed = os.sched_getaffinity(0)

    topology = read_topology(known_cpus=allowed)

    assert allowed <= topology.online
    assert sorted(number for node in topology.nodes for number in node.cpus) == sorted(topology.online)
    assert all(cpu.number in cpu.core & cpu.core_complex for cpu in topology.cpus)
