"""What people read about a machine and a binding."""

import pytest

from aioelastic._numa.devices import Accelerator
from aioelastic._numa.topology import Node
from aioelastic._numa.words import describe_applied, describe_device, describe_node


@pytest.mark.parametrize(
    ("node", "text"),
    [
        (Node(number=0, cpus=frozenset(range(4))), "node 0: CPUs 0-3"),
        (Node(number=1, cpus=frozenset([4]), has_memory=False), "node 1: CPUs 4, no memory"),
        (Node(number=2, cpus=frozenset()), "node 2: no CPUs"),
    ],
)
def test_a_node_says_what_it_lacks(node: Node, text: str) -> None:
    """CPUs and memory are worth a word when they are missing."""
    assert describe_node(node) == text


def test_a_device_without_an_address_is_called_by_its_uuid() -> None:
    """One of both is always known."""
    device = Accelerator(vendor="nvidia", address="0000:07:00.0", node=0, uuid="GPU-1")

    assert describe_device(1, device) == "GPU 1 (nvidia 0000:07:00.0)"
    assert describe_device(0, Accelerator(vendor="nvidia", address="", node=0, uuid="MIG-1")) == "GPU 0 (nvidia MIG-1)"


@pytest.mark.parametrize(
    ("chosen", "actual", "text"),
    [
        ({0, 1}, {0, 1}, "applied: CPUs 0-1"),
        ({0, 1, 2}, {1}, "applied: CPUs 1, and not the CPUs 0,2"),
        (None, {0, 1}, "not bound: it may use CPUs 0-1"),
    ],
)
def test_what_was_applied_is_what_is_there(chosen: set[int] | None, actual: set[int], text: str) -> None:
    """The kernel may have applied a part only, or nothing was to be applied."""
    assert describe_applied(chosen, actual) == text
