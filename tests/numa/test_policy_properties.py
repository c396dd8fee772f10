"""What holds of every choice, on any machine and for any allowance."""

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from aioelastic._numa.devices import Accelerator
from aioelastic._numa.errors import NumaBindingError
from aioelastic._numa.options import AffinityMode, NumaOptions
from aioelastic._numa.policy import GroupBinding, plan_group
from aioelastic._numa.topology import Cpu, Node, Topology

MODES = st.sampled_from(AffinityMode)


@st.composite
def topologies(draw: st.DrawFn) -> Topology:
    """Give a machine of up to four nodes with up to six cores of up to two CPUs, in up to two sockets."""
    sizes = draw(st.lists(st.lists(st.integers(1, 2), max_size=6), min_size=1, max_size=4))
    numbers = iter(draw(st.permutations(range(sum(map(sum, sizes))))))
    cpus: list[Cpu] = []
    nodes: list[Node] = []
    for node, cores in enumerate(sizes):
        socket = draw(st.sampled_from([0, 1, None]))
        members = [frozenset(next(numbers) for _ in range(threads)) for threads in cores]
        step = draw(st.integers(1, 6))
        for start in range(0, len(members), step):
            sharing = frozenset[int]().union(*members[start : start + step])
            cpus += [
                Cpu(number=number, node=node, socket=socket, core=core, core_complex=sharing)
                for core in members[start : start + step]
                for number in core
            ]
        nodes.append(Node(number=node, cpus=frozenset[int]().union(*members)))
    return Topology(cpus=tuple(sorted(cpus, key=lambda cpu: cpu.number)), nodes=tuple(nodes))


ALLOWANCES = st.frozensets(st.integers(0, 60)) | st.just(frozenset(range(60)))


def gpus_on(nodes: Sequence[int | None]) -> list[Accelerator]:
    """Give a GPU on each of these nodes."""
    return [Accelerator(vendor="nvidia", address=f"0000:{bus:02x}:00.0", node=node) for bus, node in enumerate(nodes)]


GPUS = st.lists(st.sampled_from([0, 0, 1, 1, 2, 3, 7, None]), max_size=8).map(gpus_on)


def plan(
    topology: Topology,
    gpus: Sequence[Accelerator],
    mode: AffinityMode,
    nprocs: int,
    allowance: frozenset[int],
    *,
    fall_back: bool = True,
) -> GroupBinding:
    """Plan a group, unbound ranks left out unless asked otherwise."""
    options = NumaOptions(mode, should_fall_back_if_binding_fails=fall_back)
    return plan_group(topology, gpus, options, nprocs, allowance)


def allowed_cores(topology: Topology, allowance: frozenset[int], node: int | None = None) -> set[frozenset[int]]:
    """Give the cores of which something is allowed, of a node or of all."""
    return {cpu.core for cpu in topology.cpus if cpu.number in allowance and node in {None, cpu.node}}


@given(topology=topologies(), gpus=GPUS, mode=MODES, nprocs=st.integers(0, 9), allowance=ALLOWANCES)
def test_nothing_outside_the_allowance_is_ever_chosen(
    topology: Topology, gpus: list[Accelerator], mode: AffinityMode, nprocs: int, allowance: frozenset[int]
) -> None:
    """Each rank is bound to some CPUs that run and may be used, or has an error that says that it is about it."""
    binding = plan(topology, gpus, mode, nprocs, allowance)

    assert [rank.local_rank for rank in binding.ranks] == list(range(nprocs))
    for rank in binding.ranks:
        if rank.cpus is None:
            assert rank.error is not None
            assert (rank.error.local_rank, rank.error.mode) == (rank.local_rank, mode)
        else:
            assert rank.error is None
            assert rank.cpus
            assert rank.cpus <= allowance & topology.online


@given(topology=topologies(), gpus=GPUS, mode=MODES, nprocs=st.integers(0, 9), allowance=ALLOWANCES)
def test_without_a_fall_back_all_ranks_are_bound_or_none(
    topology: Topology, gpus: list[Accelerator], mode: AffinityMode, nprocs: int, allowance: frozenset[int]
) -> None:
    """The group is refused by the first rank that a fall-back would leave unbound."""
    lenient = plan(topology, gpus, mode, nprocs, allowance)
    unbound = [rank.local_rank for rank in lenient.ranks if rank.cpus is None]

    if unbound:
        with pytest.raises(NumaBindingError) as caught:
            plan(topology, gpus, mode, nprocs, allowance, fall_back=False)
        assert caught.value.local_rank == unbound[0]
    else:
        assert plan(topology, gpus, mode, nprocs, allowance, fall_back=False) == lenient


@given(topology=topologies(), gpus=GPUS, nprocs=st.integers(0, 9), allowance=ALLOWANCES)
def test_exclusive_sets_are_disjoint_down_to_the_core(
    topology: Topology, gpus: list[Accelerator], nprocs: int, allowance: frozenset[int]
) -> None:
    """No two ranks have a CPU, or two CPUs of a physical core, between them."""
    chosen = plan(topology, gpus, AffinityMode.EXCLUSIVE, nprocs, allowance).cpus.values()
    cores = {cpu.number: cpu.core for cpu in topology.cpus}

    for one, other in combinations(chosen, 2):
        assert not {cores[cpu] for cpu in one} & {cores[cpu] for cpu in other}


@given(topology=topologies(), gpus=GPUS, allowance=ALLOWANCES)
def test_exclusive_sets_of_all_gpus_cover_their_nodes_evenly(
    topology: Topology, gpus: list[Accelerator], allowance: frozenset[int]
) -> None:
    """The shares of a node make up all of it that is allowed, and differ by a core at most, the first ones larger."""
    assume(gpus)
    chosen = plan(topology, gpus, AffinityMode.EXCLUSIVE, len(gpus), allowance).cpus
    cores = {cpu.number: cpu.core for cpu in topology.cpus}

    for node in topology.nodes if len(topology.nodes) > 1 else []:
        sharers = [index for index, gpu in enumerate(gpus) if gpu.node == node.number]
        possible = len(allowed_cores(topology, allowance, node.number)) >= len(sharers)
        assert [index in chosen for index in sharers] == [possible] * len(sharers)
        if sharers and possible:
            assert frozenset[int]().union(*(chosen[index] for index in sharers)) == node.cpus & allowance
            sizes = [len({cores[cpu] for cpu in chosen[index]}) for index in sharers]
            assert sizes == sorted(sizes, reverse=True)
            assert sizes[0] - sizes[-1] <= 1


@given(topology=topologies(), nprocs=st.integers(1, 12), allowance=ALLOWANCES)
def test_ranks_without_gpus_are_exclusive_as_long_as_there_are_cores(
    topology: Topology, nprocs: int, allowance: frozenset[int]
) -> None:
    """All ranks are bound if there is a core for each, and not all if there is not."""
    chosen = plan(topology, [], AffinityMode.EXCLUSIVE, nprocs, allowance).cpus

    assert (len(chosen) == nprocs) == (len(allowed_cores(topology, allowance)) >= nprocs)


@given(topology=topologies(), gpus=GPUS, nprocs=st.integers(0, 9), allowance=ALLOWANCES)
def test_modes_are_within_each_other(
    topology: Topology, gpus: list[Accelerator], nprocs: int, allowance: frozenset[int]
) -> None:
    """A share and a complex are part of the node, and the node is part of the socket."""
    node, socket, share, one_complex = (plan(topology, gpus, mode, nprocs, allowance).cpus for mode in AffinityMode)

    assert all(share[rank] <= node[rank] for rank in share)
    assert all(one_complex[rank] <= node[rank] for rank in one_complex)
    assert all(node[rank] <= socket[rank] for rank in node)
    assert one_complex.keys() == node.keys() <= socket.keys()


@given(topology=topologies(), gpus=GPUS, allowance=ALLOWANCES)
def test_complexes_differ_as_long_as_there_are_enough(
    topology: Topology, gpus: list[Accelerator], allowance: frozenset[int]
) -> None:
    """GPUs of a node have complexes of their own, the larger ones first, and take turns when there are too few."""
    chosen = plan(topology, gpus, AffinityMode.CORE_COMPLEX, len(gpus), allowance).cpus

    for node in topology.nodes if len(topology.nodes) > 1 else []:
        own = [chosen[index] for index, gpu in enumerate(gpus) if gpu.node == node.number and index in chosen]
        there = {cpu.core_complex & allowance for cpu in topology.cpus if cpu.number in node.cpus & allowance}
        assert set(own) <= there
        assert len(set(own)) == min(len(own), len(there))
        sizes = [len(cpus) for cpus in own[: len(there)]]
        assert sizes == sorted(sizes, reverse=True)


@given(nodes=st.integers(1, 6), cores=st.integers(1, 5), nprocs=st.integers(1, 20))
def test_the_spread_over_equal_nodes_is_even_and_in_order(nodes: int, cores: int, nprocs: int) -> None:
    """Nodes have the same number of ranks or one more, later ranks are on later nodes, and rank 0 is on its first."""
    cpus = [
        Cpu(
            number=number,
            node=number // cores,
            socket=0,
            core=frozenset([number]),
            core_complex=frozenset([number]),
        )
        for number in range(nodes * cores)
    ]
    every = [frozenset(range(node * cores, (node + 1) * cores)) for node in range(nodes)]
    topology = Topology(
        cpus=tuple(cpus), nodes=tuple(Node(number=node, cpus=members) for node, members in enumerate(every))
    )

    chosen = plan(topology, [], AffinityMode.NODE, nprocs, topology.online).cpus

    homes = [every.index(chosen[rank]) for rank in range(nprocs)]
    counts = [homes.count(node) for node in range(nodes)]
    assert homes == sorted(homes)
    assert max(counts) - min(counts) <= 1


@given(
    siblings=st.lists(st.frozensets(st.integers(0, 7)), min_size=8, max_size=8),
    nprocs=st.integers(1, 8),
    mode=MODES,
)
def test_contradictory_siblings_break_nothing(siblings: list[frozenset[int]], nprocs: int, mode: AffinityMode) -> None:
    """Where CPUs disagree about what they share, ranks have CPUs of the node, and exclusive ones their own."""
    cpus = tuple(
        Cpu(number=number, node=0, socket=0, core=shared | {number}, core_complex=shared | {number})
        for number, shared in enumerate(siblings)
    )
    topology = Topology(cpus=cpus, nodes=(Node(number=0, cpus=frozenset(range(8))),))

    chosen = plan(topology, [], mode, nprocs, topology.online).cpus

    assert all(cpus <= topology.online for cpus in chosen.values())
    if mode is AffinityMode.EXCLUSIVE:
        assert sum(map(len, chosen.values())) == len(frozenset[int]().union(*chosen.values()))
