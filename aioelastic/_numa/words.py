"""What was asked, found and applied, in words (pure)."""

from collections.abc import Collection, Sequence

from aioelastic._base.counts import counted
from aioelastic._numa.cpu_lists import format_cpu_list
from aioelastic._numa.devices import Accelerator
from aioelastic._numa.topology import Node, Topology


def describe_found(topology: Topology, devices: Sequence[Accelerator], allowance: Collection[int]) -> str:
    """Say in one line what a machine has.

    Args:
        topology: Its CPUs.
        devices: Its visible accelerators.
        allowance: The CPUs that the supervisor may use.

    Returns:
        The line, without an end.

    Example:
        >>> from aioelastic._numa.topology import read_topology
        >>> describe_found(read_topology("/no/such/place", known_cpus=[0, 1]), [], {0})
        '1 node, sockets not known, 2 cores, 2 CPUs (1 allowed: 0), no GPU'
    """
    cores = {min(cpu.core) for cpu in topology.cpus}
    allowed = topology.online & frozenset(allowance)
    return ", ".join(
        [
            counted(len(topology.nodes), "node"),
            counted(len(topology.sockets), "socket") if topology.sockets else "sockets not known",
            counted(len(cores), "core"),
            f"{counted(len(topology.cpus), 'CPU')} ({len(allowed)} allowed: {format_cpu_list(allowed)})",
            f"{counted(len(devices), 'GPU')} ({devices[0].vendor})" if devices else "no GPU",
        ]
    )


def describe_node(node: Node) -> str:
    """Say in one line what a node has.

    Example:
        >>> describe_node(Node(number=1, cpus=frozenset([2, 3]), has_memory=False))
        'node 1: CPUs 2-3, no memory'
    """
    cpus = f"CPUs {format_cpu_list(node.cpus)}" if node.cpus else "no CPUs"
    return f"node {node.number}: {cpus}{'' if node.has_memory else ', no memory'}"


def describe_device(index: int, device: Accelerator) -> str:
    """Say in a few words which accelerator one is.

    Example:
        >>> describe_device(3, Accelerator(vendor="nvidia", address="0000:07:00.0", node=1))
        'GPU 3 (nvidia 0000:07:00.0)'
    """
    return f"GPU {index} ({device.vendor} {device.address or device.uuid})"


def describe_applied(chosen: Collection[int] | None, actual: Collection[int]) -> str:
    """Say where a rank runs, beside what was chosen for it.

    The kernel takes a set of which only a part is allowed, and binds to that part without a word
    (sched_setaffinity(2)); so what is true afterwards is worth reading back.

    Args:
        chosen: The CPUs that it was to be bound to, or ``None`` when it was left unbound.
        actual: The CPUs that it may use.

    Returns:
        The words, without an end.

    Example:
        >>> describe_applied({0, 1}, {0, 1}), describe_applied({0, 1}, {0})
        ('applied: CPUs 0-1', 'applied: CPUs 0, and not the CPUs 1')
        >>> describe_applied(None, {0, 1})
        'not bound: it may use CPUs 0-1'
    """
    where = f"CPUs {format_cpu_list(actual)}"
    if chosen is None:
        return f"not bound: it may use {where}"
    missing = frozenset(chosen) - frozenset(actual)
    return f"applied: {where}{f', and not the CPUs {format_cpu_list(missing)}' if missing else ''}"
