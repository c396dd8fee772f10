"""The machine's CPUs as sysfs shows them, whatever of it is there.

The files, and what they hold, are described in the kernel's Documentation/admin-guide/cputopology.rst,
Documentation/ABI/stable/sysfs-devices-system-cpu, Documentation/ABI/stable/sysfs-devices-node and
Documentation/ABI/testing/sysfs-devices-system-cpu (caches).
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from aioelastic._numa.cpu_lists import format_cpu_list
from aioelastic._numa.kernel_files import numbered_entries, read_cpu_list, read_number, read_text


@dataclass(frozen=True, slots=True, kw_only=True)
class Cpu:
    """One logical CPU that is online.

    Attributes:
        number: Its number.
        node: The number of its NUMA node.
        socket: The number of its socket (physical package), or ``None`` where that is not known.
        core: The logical CPUs of its physical core, itself included.
        core_complex: The CPUs that share its highest-level data or unified cache, itself included; where its caches
            are not known, those of its socket and node.
    """

    number: int
    node: int
    socket: int | None
    core: frozenset[int]
    core_complex: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Node:
    """One NUMA node.

    Attributes:
        number: Its number.
        cpus: Its online CPUs; none for a node of memory only.
        has_memory: Whether it has memory of its own.
    """

    number: int
    cpus: frozenset[int]
    has_memory: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """The CPUs of a machine at one moment.

    Attributes:
        cpus: The online CPUs by ascending number.
        nodes: The NUMA nodes by ascending number; at least one.
        offline: CPUs that are there and not online.
        shows_nodes: Whether the machine shows its nodes; if not, node 0 stands for all of it.
        notes: What could not be read and what was taken in its place, in words.
    """

    cpus: tuple[Cpu, ...]
    nodes: tuple[Node, ...]
    offline: frozenset[int] = frozenset()
    shows_nodes: bool = True
    notes: tuple[str, ...] = ()

    @property
    def online(self) -> frozenset[int]:
        """The numbers of the online CPUs."""
        return frozenset(cpu.number for cpu in self.cpus)

    @property
    def sockets(self) -> tuple[int, ...]:
        """The numbers of the sockets, ascending; those that are known."""
        return tuple(sorted({cpu.socket for cpu in self.cpus if cpu.socket is not None}))

    def node(self, number: int) -> Node | None:
        """Give a node by its number, or ``None`` when the machine shows no such node."""
        return next((node for node in self.nodes if node.number == number), None)


def read_topology(sys_root: str | os.PathLike[str] = "/sys", *, known_cpus: Iterable[int] = ()) -> Topology:
    """Look at a machine's CPUs, nodes, sockets, cores and caches.

    Nothing in sysfs is taken for granted. Without node directories all CPUs are on node 0; a CPU that no node lists is
    on the lowest node; a CPU without siblings is a core of its own; without caches (one of them missing, or half of its
    files) the CPUs of the socket and node are the core complex. What was missing is in the notes. It reads about 15
    small files per CPU: not for an event loop.

    Args:
        sys_root: Where sysfs is.
        known_cpus: CPUs that are online for sure, above all those that the process may use itself: a container can
            show made-up numbers in sysfs (lxcfs does), or no sysfs at all.

    Returns:
        What is there; without sysfs and known CPUs, one node with no CPU.

    Example:
        >>> from aioelastic._numa.topology import read_topology
        >>> topology = read_topology("/no/such/place", known_cpus=[0, 1])
        >>> [sorted(node.cpus) for node in topology.nodes]
        [[0, 1]]
    """
    system = Path(sys_root, "devices/system")
    notes: list[str] = []
    online = _online(system / "cpu", frozenset(known_cpus), notes)
    nodes = _nodes(system / "node", online, notes)
    shows_nodes = bool(nodes)
    if not shows_nodes:
        notes.append("no NUMA nodes are shown: all CPUs are taken for node 0")
        nodes = (Node(number=0, cpus=online),)
    return Topology(
        cpus=_cpus(system / "cpu", nodes, notes),
        nodes=nodes,
        offline=_offline(system / "cpu", online),
        shows_nodes=shows_nodes,
        notes=tuple(notes),
    )


def _online(directory: Path, known: frozenset[int], notes: list[str]) -> frozenset[int]:
    """Give the CPUs that run, by sysfs and by the kernel's own word."""
    listed = read_cpu_list(directory / "online")
    if listed is None:
        # The first CPU often has no such file: it cannot be taken offline.
        each = list(numbered_entries(directory, "cpu"))
        listed = frozenset(number for number in each if read_number(directory / f"cpu{number}" / "online") != 0)
        notes.append("the list of online CPUs is missing: " + ("each was looked at" if each else "no CPU is shown"))
    elif unlisted := known - listed:
        notes.append(f"CPUs {format_cpu_list(unlisted)} may be used and are not listed as online")
    return listed | known


def _offline(directory: Path, online: frozenset[int]) -> frozenset[int]:
    """Give the CPUs that are there and do not run."""
    present = read_cpu_list(directory / "present")
    listed = read_cpu_list(directory / "offline")
    if listed is None:
        return (present or frozenset(numbered_entries(directory, "cpu"))) - online
    # CPUs that could be plugged in one day are listed as offline, too.
    return (listed if present is None else listed & present) - online


def _nodes(directory: Path, online: frozenset[int], notes: list[str]) -> tuple[Node, ...]:
    """Give the nodes that are shown, each online CPU on exactly one of them."""
    numbers = list(numbered_entries(directory, "node"))
    with_memory = read_cpu_list(directory / "has_memory")
    left = online
    members: dict[int, frozenset[int]] = {}
    for number in numbers:
        cpus = read_cpu_list(directory / f"node{number}" / "cpulist")
        if cpus is None:
            notes.append(f"the CPUs of node {number} are not listed: its links are taken")
            cpus = frozenset(numbered_entries(directory / f"node{number}", "cpu"))
        members[number] = cpus & left
        left -= cpus
    if numbers and left:
        notes.append(f"CPUs {format_cpu_list(left)} are on no node: they are taken for node {numbers[0]}")
        members[numbers[0]] |= left
    return tuple(
        Node(number=number, cpus=cpus, has_memory=_has_memory(directory / f"node{number}", number, with_memory))
        for number, cpus in members.items()
    )


def _has_memory(directory: Path, number: int, with_memory: frozenset[int] | None) -> bool:
    if with_memory is not None:
        return number in with_memory
    total = [line.split() for line in (read_text(directory / "meminfo") or "").splitlines() if "MemTotal:" in line]
    return not total or total[0][-2:] != ["0", "kB"]


def _cpus(directory: Path, nodes: Iterable[Node], notes: list[str]) -> tuple[Cpu, ...]:
    """Give all online CPUs with what they share."""
    homes = {number: node for node in nodes for number in node.cpus}
    sockets: dict[int, int | None] = {}
    cores: dict[int, frozenset[int]] = {}
    caches: dict[int, frozenset[int]] = {}
    for number in homes:
        path = f"{directory}/cpu{number}"
        socket = read_number(f"{path}/topology/physical_package_id")
        # Some platforms say -1 where they know no packages.
        sockets[number] = socket if socket is not None and socket >= 0 else None
        if (core := _siblings(f"{path}/topology", number)) is not None:
            cores[number] = core
        if (cache := _highest_cache(f"{path}/cache", number)) is not None:
            caches[number] = cache
    _note_missing(notes, homes, "socket is", {number for number, socket in sockets.items() if socket is not None})
    _note_missing(notes, homes, "hyper-threads are", cores)
    _note_missing(notes, homes, "caches are", caches)
    return tuple(
        Cpu(
            number=number,
            node=homes[number].number,
            socket=sockets[number],
            core=cores.get(number, frozenset([number])),
            core_complex=caches.get(number)
            or frozenset(other for other in homes[number].cpus if sockets[other] == sockets[number]),
        )
        for number in sorted(homes)
    )


def _note_missing(notes: list[str], all_cpus: Mapping[int, Node], what: str, known: Iterable[int]) -> None:
    missing = all_cpus.keys() - set(known)
    if missing:
        notes.append(f"the {what} not known of CPUs {format_cpu_list(missing)}")


def _siblings(directory: str, number: int) -> frozenset[int] | None:
    """Give the CPUs of a core; the file has a newer name since Linux 5.3."""
    for name in ("thread_siblings_list", "core_cpus_list"):
        cpus = read_cpu_list(f"{directory}/{name}")
        if cpus is not None and number in cpus:
            return cpus
    return None


def _highest_cache(directory: str, number: int) -> frozenset[int] | None:
    """Give the CPUs that share the cache of the highest level, or ``None`` unless all its caches can be read.

    With one of them left out, the highest of the others would pass for it, and a core for its complex.
    """
    highest = 0
    sharing: frozenset[int] | None = None
    for index in numbered_entries(directory, "index"):
        entry = f"{directory}/index{index}"
        kind = read_text(f"{entry}/type")
        if kind == "Instruction":
            continue
        level = read_number(f"{entry}/level")
        cpus = read_cpu_list(f"{entry}/shared_cpu_list")
        if kind not in {"Data", "Unified"} or level is None or cpus is None or number not in cpus:
            return None
        if level > highest:
            highest, sharing = level, cpus
    return sharing
