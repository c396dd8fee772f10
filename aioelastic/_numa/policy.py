"""Which CPUs each rank gets (pure)."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from aioelastic._base.counts import counted
from aioelastic._numa.cpu_lists import format_cpu_list
from aioelastic._numa.devices import Accelerator
from aioelastic._numa.errors import NumaBindingError
from aioelastic._numa.options import AffinityMode, NumaOptions
from aioelastic._numa.topology import Cpu, Topology
from aioelastic._numa.words import describe_device, describe_found

_Cpus: TypeAlias = frozenset[int]

_REMEDY: Final = "choose another mode, give the supervisor more CPUs, or set should_fall_back_if_binding_fails"

_HIDING: Final = {"nvidia": "CUDA_VISIBLE_DEVICES", "amd": "HIP_VISIBLE_DEVICES"}
"""The variables that hide a vendor's accelerators when they are empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RankBinding:
    """What is decided for one rank.

    Attributes:
        local_rank: The rank.
        cpus: The CPUs to bind it to, or ``None`` when it stays unbound.
        reason: Why these, in words.
        error: Why it stays unbound, or ``None``.
    """

    local_rank: int
    cpus: _Cpus | None
    reason: str
    error: NumaBindingError | None = None

    def __str__(self) -> str:
        where = "not bound" if self.cpus is None else f"CPUs {format_cpu_list(self.cpus)}"
        return f"rank {self.local_rank}: {where}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupBinding:
    """What is decided for a group of ranks.

    Attributes:
        mode: The mode asked for.
        ranks: One decision per rank, in their order.
        found: What the machine has, in words.
        notes: What was missing or uncertain, in words.
    """

    mode: AffinityMode
    ranks: tuple[RankBinding, ...]
    found: str
    notes: tuple[str, ...] = ()

    @property
    def cpus(self) -> dict[int, _Cpus]:
        """The CPUs of each rank that is to be bound."""
        return {rank.local_rank: rank.cpus for rank in self.ranks if rank.cpus is not None}

    @property
    def explanation(self) -> str:
        """What was asked, what was found, and what follows for each rank; some lines, without an end."""
        asked = f"asked: NUMA mode {self.mode} for {counted(len(self.ranks), 'rank')}"
        notes = [f"note: {note}" for note in self.notes]
        return "\n".join([asked, f"found: {self.found}", *notes, *map(str, self.ranks)])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Group:
    """What the decisions for all ranks rest on.

    Attributes:
        topology: The machine's CPUs.
        usable: Those of them that are allowed.
        devices: The visible accelerators.
        homes: The node of each accelerator, or of each rank where there are none.
        mode: The mode asked for.
    """

    topology: Topology
    usable: tuple[Cpu, ...]
    devices: Sequence[Accelerator]
    homes: tuple[int | None, ...]
    mode: AffinityMode

    def device(self, rank: int) -> str:
        """Give a rank's accelerator in words."""
        return describe_device(rank, self.devices[rank])

    def error(self, rank: int, problem: str, remedy: str = _REMEDY) -> NumaBindingError:
        """Make the error of a rank."""
        return NumaBindingError(problem, mode=self.mode, local_rank=rank, remedy=remedy)

    def checked_home(self, rank: int) -> int:
        """Give a rank's node, or raise why it has none."""
        if not self.usable:
            raise self.error(rank, f"none of the {counted(len(self.topology.cpus), 'CPU')} of this machine is allowed")
        if rank >= len(self.homes):
            variable = _HIDING.get(self.devices[0].vendor)
            hide = f", or set {variable} to nothing to spread them over the nodes without GPUs" if variable else ""
            problem = f"it has no GPU, as only {len(self.devices)} can be seen"
            raise self.error(rank, problem, f"start no more ranks than GPUs{hide}")
        home = self.homes[rank]
        if home is None:
            remedy = "install nvidia-ml-py" if self.devices[rank].vendor == "nvidia" else _REMEDY
            raise self.error(rank, f"the node of {self.device(rank)} cannot be read", remedy)
        if self.topology.node(home) is None:
            shown = format_cpu_list(node.number for node in self.topology.nodes)
            raise self.error(rank, f"{self.device(rank)} is on node {home}, and the nodes shown are {shown}")
        return home


def plan_group(
    topology: Topology,
    devices: Sequence[Accelerator],
    options: NumaOptions,
    nprocs: int,
    allowance: Collection[int],
    *,
    notes: Sequence[str] = (),
) -> GroupBinding:
    """Decide which CPUs each rank of a group gets.

    Rank r belongs to the accelerator with index r, and with it to its node; see `AffinityMode` for what it gets there.
    Where there are no accelerators, each rank has a node as if it had one there: the allowed physical cores, node after
    node, are cut into as many equal stretches as there are ranks, and a rank goes to the node in the middle of its
    stretch. On nodes of the same size that is an even spread, in order; a node of which little is allowed gets few
    ranks; a node without an allowed CPU gets none; and no node gets more ranks than cores as long as there are enough.
    A node without memory counts as any other.

    EXCLUSIVE shares a node among all visible accelerators on it, whether they have a rank or not; the first ones get
    one core more where it does not come out even. SOCKET takes the node alone where sockets are not known.
    CORE_COMPLEX gives the k-th accelerator of a node its k-th complex, those with most allowed CPUs first, and starts
    again from the first after the last. A core of which some CPUs are not allowed counts, with those that are.

    Args:
        topology: The machine's CPUs.
        devices: The visible accelerators in the order of their indices; none for a job without them.
        options: The mode, and whether ranks that cannot be bound are left unbound.
        nprocs: The number of ranks.
        allowance: The CPUs that the supervisor may use; nothing outside is ever given.
        notes: What was missing or uncertain about the machine, to be said along with the decisions.

    Returns:
        The decisions.

    Raises:
        NumaBindingError: A rank cannot be bound, and there is no fall-back. No CPU is allowed at all; it has no
            accelerator while others have; the node of its accelerator is not known, or not shown; no CPU of that node
            is allowed; or there are fewer cores than accelerators to share them exclusively.

    Example:
        >>> from aioelastic._numa.options import NumaOptions
        >>> from aioelastic._numa.policy import plan_group
        >>> from aioelastic._numa.topology import read_topology
        >>> four = read_topology("/no/such/place", known_cpus=range(4))
        >>> plan = plan_group(four, [], NumaOptions("exclusive"), 2, {0, 1, 2})
        >>> {rank: sorted(cpus) for rank, cpus in plan.cpus.items()}
        {0: [0, 1], 1: [2]}
    """
    allowed = frozenset(allowance)
    usable = tuple(cpu for cpu in topology.cpus if cpu.number in allowed)
    homes = _homes_of_devices(topology, devices) if devices else _spread(usable, nprocs)
    group = _Group(topology=topology, usable=usable, devices=devices, homes=homes, mode=options.affinity_mode)
    ranks = []
    for rank in range(nprocs):
        try:
            ranks.append(_bind(group, rank))
        except NumaBindingError as error:
            if not options.should_fall_back_if_binding_fails:
                raise
            ranks.append(RankBinding(local_rank=rank, cpus=None, reason=error.problem, error=error))
    found = describe_found(topology, devices, allowed)
    return GroupBinding(mode=options.affinity_mode, ranks=tuple(ranks), found=found, notes=tuple(notes))


def _homes_of_devices(topology: Topology, devices: Iterable[Accelerator]) -> tuple[int | None, ...]:
    """Give the node of each accelerator; where there is but one node, it is that one."""
    if not topology.shows_nodes:
        return tuple(topology.nodes[0].number for _ in devices)
    only = topology.nodes[0].number if len(topology.nodes) == 1 else None
    return tuple(only if device.node is None else device.node for device in devices)


def _spread(usable: Iterable[Cpu], nprocs: int) -> tuple[int, ...]:
    """Give the node of each rank on a machine without accelerators; none when no CPU is allowed."""
    homes = [node for node, _ in sorted({(cpu.node, min(cpu.core)) for cpu in usable})]
    if not homes:
        return ()
    # The middle of the stretch; where it falls between two cores, the lower one.
    return tuple(homes[((2 * rank + 1) * len(homes) - 1) // (2 * nprocs)] for rank in range(nprocs))


def _bind(group: _Group, rank: int) -> RankBinding:
    """Decide for one rank."""
    home = group.checked_home(rank)
    on_node = [cpu for cpu in group.usable if cpu.node == home]
    sharers = [index for index, node in enumerate(group.homes) if node == home]
    place = sharers.index(rank)
    if group.mode is AffinityMode.NODE:
        chosen, what = _numbers(on_node), "all of the node that is allowed"
    elif group.mode is AffinityMode.SOCKET:
        chosen, what = _socket(group, home)
    elif group.mode is AffinityMode.EXCLUSIVE:
        cores = _groups(on_node, {cpu.number: min(cpu.core) for cpu in on_node})
        chosen, what = _share(cores, place, len(sharers))
    else:
        complexes = _groups(on_node, {cpu.number: min(cpu.core_complex) for cpu in on_node})
        chosen, what = _complex(complexes, place)
    owner = f"{group.device(rank)} is on node {home}" if group.devices else f"no GPU, spread to node {home}"
    if not chosen:
        raise group.error(rank, f"{owner}, {what if on_node else 'which has no CPU that is allowed'}")
    return RankBinding(local_rank=rank, cpus=chosen, reason=f"{owner}; {what}")


def _numbers(cpus: Iterable[Cpu]) -> _Cpus:
    return frozenset(cpu.number for cpu in cpus)


def _groups(cpus: Iterable[Cpu], keys: Mapping[int, int]) -> list[_Cpus]:
    """Divide CPUs by their keys, ascending by key."""
    groups: dict[int, set[int]] = {}
    for cpu in cpus:
        groups.setdefault(keys[cpu.number], set()).add(cpu.number)
    return [frozenset(members) for _, members in sorted(groups.items())]


def _socket(group: _Group, home: int) -> tuple[_Cpus, str]:
    """Give the CPUs of all nodes of a node's socket; a node is on the socket of its first CPU."""
    sockets: dict[int, int | None] = {}
    for cpu in group.topology.cpus:
        sockets.setdefault(cpu.node, cpu.socket)
    own = sockets.get(home)
    if own is None:
        return _numbers(cpu for cpu in group.usable if cpu.node == home), "its socket is not known: the node alone"
    nodes = {node for node, socket in sockets.items() if socket == own}
    what = f"all of socket {own} (nodes {format_cpu_list(nodes)}) that is allowed"
    return _numbers(cpu for cpu in group.usable if cpu.node in nodes), what


def _share(cores: Sequence[_Cpus], place: int, sharers: int) -> tuple[_Cpus, str]:
    """Give the share of one of so many in the cores; nothing when there are too few for all."""
    if len(cores) < sharers:
        return frozenset(), f"and {sharers} cannot share {counted(len(cores), 'allowed core')} exclusively"
    each, rest = divmod(len(cores), sharers)
    start = place * each + min(place, rest)
    own = cores[start : start + each + (place < rest)]
    what = f"{len(own)} of its {counted(len(cores), 'allowed core')}, shared exclusively by {sharers}"
    return frozenset().union(*own), what


def _complex(complexes: Sequence[_Cpus], place: int) -> tuple[_Cpus, str]:
    """Give one core complex, those with most CPUs first, round robin."""
    if not complexes:
        return frozenset(), "and no core complex is allowed"
    # Sorting keeps the order of those that are equal: by their lowest CPU, be it allowed or not.
    ranked = sorted(complexes, key=len, reverse=True)
    return ranked[place % len(ranked)], f"core complex {place % len(ranked) + 1} of {len(ranked)}"
