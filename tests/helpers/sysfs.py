"""Machines that are not there: trees of /sys and /proc, as the kernel would show them."""

import shutil
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path

from aioelastic._numa.machine import Machine, read_machine
from aioelastic._numa.options import AffinityMode, NumaOptions
from aioelastic._numa.policy import GroupBinding, plan_group

NVIDIA = 0x10DE
AMD = 0x1002
INTEL = 0x8086


def cpus(text: str) -> frozenset[int]:
    """Give the CPUs of a list such as ``0-3,8``; of ``""``, none."""
    bounds = [part.split("-") for part in text.split(",") if part]
    return frozenset(number for each in bounds for number in range(int(each[0]), int(each[-1]) + 1))


def cpu_list(numbers: Iterable[int]) -> str:
    """Write CPUs one by one, which is a list, too."""
    return ",".join(map(str, sorted(numbers)))


class MachineTree:
    """Trees of one machine below a directory, built up piece by piece.

    Args:
        root: An empty directory; ``sys`` and ``proc`` are made in it.
    """

    def __init__(self, root: Path) -> None:
        self.sys = root / "sys"
        self.proc = root / "proc"
        self.cpu = self.sys / "devices/system/cpu"
        self.node = self.sys / "devices/system/node"
        self.pci = self.sys / "bus/pci/devices"
        self._with_memory: set[int] = set()

    @staticmethod
    def write(path: Path, text: object) -> None:
        """Write a file of one line, its directories included."""
        try:
            path.write_text(f"{text}\n")
        except FileNotFoundError:  # rarely: asking first costs as much as the file
            path.parent.mkdir(parents=True)
            path.write_text(f"{text}\n")

    def remove(self, *patterns: str) -> None:
        """Remove what is below /sys and fits one of the patterns."""
        for path in [found for pattern in patterns for found in self.sys.glob(pattern)]:
            if path.is_dir() and not path.is_symlink():
                shutil.rmtree(path)
            else:
                path.unlink()

    def add_online(self, online: Collection[int], offline: Collection[int] = ()) -> None:
        """Say which CPUs run."""
        self.write(self.cpu / "online", cpu_list(online))
        self.write(self.cpu / "offline", cpu_list(offline))
        self.write(self.cpu / "present", cpu_list([*online, *offline]))
        for number in (*online, *offline):
            (self.cpu / f"cpu{number}").mkdir(parents=True, exist_ok=True)
            if number:
                self.write(self.cpu / f"cpu{number}/online", int(number in online))

    def add_core(self, threads: Collection[int], socket: int) -> None:
        """Add the topology of the CPUs of a core, and its own two caches of the first level."""
        for number in threads:
            topology = self.cpu / f"cpu{number}/topology"
            self.write(topology / "physical_package_id", socket)
            self.write(topology / "thread_siblings_list", cpu_list(threads))
        self.add_cache(0, 1, "Data", threads)
        self.add_cache(1, 1, "Instruction", threads)

    def add_cache(self, index: int, level: int, kind: str, sharing: Collection[int]) -> None:
        """Add a cache to each of the CPUs that share it."""
        for number in sharing:
            entry = self.cpu / f"cpu{number}/cache/index{index}"
            self.write(entry / "level", level)
            self.write(entry / "type", kind)
            self.write(entry / "shared_cpu_list", cpu_list(sharing))

    def add_node(self, number: int, members: Collection[int], *, memory: bool = True) -> None:
        """Add a NUMA node."""
        if memory:
            self._with_memory.add(number)
        self.write(self.node / f"node{number}/cpulist", cpu_list(members))
        self.write(self.node / f"node{number}/meminfo", f"Node {number} MemTotal:       {4096 * memory} kB")
        self.write(self.node / "has_memory", cpu_list(self._with_memory))
        for member in members:
            (self.node / f"node{number}/cpu{member}").mkdir()

    def add_pci(self, address: str, node: object, *, vendor: int = NVIDIA, kind: int = 0x0302) -> Path:
        """Add a PCI device and give its directory."""
        device = self.pci / address
        self.write(device / "vendor", f"0x{vendor:04x}")
        self.write(device / "class", f"0x{kind:04x}00")
        self.write(device / "numa_node", node)
        return device

    def add_gpus(self, nodes: Sequence[int], *, model: str = "NVIDIA A100") -> None:
        """Add NVIDIA GPUs on these nodes, on the bus and in the driver's list, with UUIDs ``GPU-000...``."""
        for index, node in enumerate(nodes):
            address = f"0000:{index + 1:02x}:00.0"
            self.add_pci(address, node)
            self.add_driver_entry(address, uuid=f"GPU-{index:04x}0000-1111", model=model)

    def add_driver_entry(self, address: str, *, uuid: str, model: str = "NVIDIA A100", excluded: str = "No") -> None:
        """Add a GPU to the list of NVIDIA's driver."""
        self.write(
            self.proc / f"driver/nvidia/gpus/{address}/information",
            f"Model: \t\t {model}\nIRQ:   \t\t 47\nGPU UUID: \t {uuid}\nVideo BIOS: \t ??.??.??.??.??\n"
            f"Bus Type: \t PCIe\nBus Location: \t {address}\nDevice Minor: \t 0\nGPU Excluded:\t {excluded}",
        )


def build_tree(
    root: Path,
    *,
    sockets: int = 1,
    nodes: int = 1,
    cores: int = 4,
    threads: int = 1,
    per_cache: int = 0,
    offline: Collection[int] = (),
) -> MachineTree:
    """Build the tree of a regular machine without accelerators.

    The first threads of all cores come first, node after node; then the second threads in the same order.

    Args:
        root: An empty directory.
        sockets: The number of sockets.
        nodes: NUMA nodes of a socket.
        cores: Physical cores of a node.
        threads: Hyper-threads of a core.
        per_cache: Cores that share a cache of the third level; all of a node unless given.
        offline: CPUs that do not run.
    """
    tree = MachineTree(root)
    total = sockets * nodes * cores

    def running(core_numbers: Iterable[int]) -> list[int]:
        every = [core + thread * total for core in core_numbers for thread in range(threads)]
        return sorted(set(every) - set(offline))

    tree.add_online(running(range(total)), offline)
    for core in range(total):
        tree.add_core(running([core]), core // (cores * nodes))
    for node in range(sockets * nodes):
        own = range(node * cores, (node + 1) * cores)
        tree.add_node(node, running(own))
        step = per_cache or cores
        for start in own[::step]:
            tree.add_cache(3, 3, "Unified", running(range(start, min(start + step, own.stop))))
    return tree


def look(tree: MachineTree, allowed: str, **variables: str) -> Machine:
    """Read the machine of a tree."""
    return read_machine(variables, cpus(allowed), sys_root=tree.sys, proc_root=tree.proc)


def plan(machine: Machine, mode: AffinityMode | str, nprocs: int, *, fall_back: bool = False) -> GroupBinding:
    """Plan a group on a machine."""
    options = NumaOptions(AffinityMode(mode), should_fall_back_if_binding_fails=fall_back)
    return plan_group(machine.topology, machine.devices, options, nprocs, machine.allowance, notes=machine.notes)


def one_node(root: Path) -> MachineTree:
    """Four cores, two GPUs."""
    tree = build_tree(root, cores=4)
    tree.add_gpus([0, 0])
    return tree


def two_sockets(root: Path) -> MachineTree:
    """Two sockets of four cores with hyper-threads and two GPUs each."""
    tree = build_tree(root, sockets=2, cores=4, threads=2)
    tree.add_gpus([0, 0, 1, 1])
    return tree


def epyc(root: Path) -> MachineTree:
    """Two sockets of four nodes of 16 cores, one L3 per 8 cores; GPUs on nodes 1, 1, 5 and 7."""
    tree = build_tree(root, sockets=2, nodes=4, cores=16, per_cache=8)
    tree.add_gpus([1, 1, 5, 7])
    return tree


def eight_gpus(root: Path) -> MachineTree:
    """Two sockets of ten cores, one L3 per five, with four GPUs each."""
    tree = build_tree(root, sockets=2, cores=10, per_cache=5)
    tree.add_gpus([0, 0, 0, 0, 1, 1, 1, 1])
    return tree


def interleaved_gpus(root: Path) -> MachineTree:
    """Two sockets of three cores, whose GPUs take turns."""
    tree = build_tree(root, sockets=2, cores=3)
    tree.add_gpus([1, 0, 1, 0])
    return tree


def odd_numbers(root: Path) -> MachineTree:
    """Seven cores with hyper-threads, L3s of four and three of them, three GPUs."""
    tree = build_tree(root, cores=7, threads=2, per_cache=4)
    tree.add_gpus([0, 0, 0])
    return tree


def offline_cpus(root: Path) -> MachineTree:
    """Two nodes of four cores with hyper-threads; core 1, and a thread of core 2, are offline."""
    tree = build_tree(root, sockets=2, cores=4, threads=2, offline=[1, 9, 10])
    tree.add_gpus([0, 0])
    return tree


def no_memory(root: Path) -> MachineTree:
    """Two nodes of two cores, the second without memory, one GPU each."""
    tree = build_tree(root, cores=4)
    tree.remove("devices/system/node")
    tree.add_node(0, [0, 1])
    tree.add_node(1, [2, 3], memory=False)
    tree.add_gpus([0, 1])
    return tree


def minus_one(root: Path) -> MachineTree:
    """Two sockets of two cores; the firmware does not say where the GPUs are."""
    tree = build_tree(root, sockets=2, cores=2)
    tree.add_gpus([-1, -1])
    return tree


def no_gpu(root: Path) -> MachineTree:
    """Two sockets of two nodes of two cores with hyper-threads, no GPU."""
    return build_tree(root, sockets=2, nodes=2, cores=2, threads=2)


def no_caches(root: Path) -> MachineTree:
    """Two nodes of one socket, two cores each, no cache shown; a GPU each."""
    tree = build_tree(root, nodes=2, cores=2)
    tree.add_gpus([0, 1])
    tree.remove("devices/system/cpu/cpu*/cache")
    return tree


def no_sysfs(root: Path) -> MachineTree:
    """Nothing at all."""
    return MachineTree(root)


def no_node_directory(root: Path) -> MachineTree:
    """Two sockets of two cores that say so, while the nodes are hidden; the GPUs say that they are on nodes 0 and 1."""
    tree = build_tree(root, sockets=2, cores=2)
    tree.add_gpus([0, 1])
    tree.remove("devices/system/node")
    return tree
