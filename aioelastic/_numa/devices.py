"""The machine's accelerators and their NUMA nodes, without any vendor's library.

PCI devices are described in the kernel's Documentation/ABI/testing/sysfs-bus-pci (``class``, ``vendor``,
``numa_node``, ``driver``, ``physfn``), AMD's ``unique_id`` in Documentation/gpu/amdgpu, and the driver's files below
``/proc/driver/nvidia`` in the chapter on its /proc interface of NVIDIA's README for Linux.
"""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from aioelastic._numa.kernel_files import read_number, read_text

VENDORS: Final = {0x10DE: "nvidia", 0x1002: "amd", 0x8086: "intel"}
"""Makers of accelerators by PCI vendor id (pci.ids), in the order in which their devices are taken for the ranks'."""

GPU_CLASSES: Final = frozenset({0x0300, 0x0302, 0x0380, 0x1200})
"""PCI classes of accelerators: VGA, 3D and other display controllers, processing accelerators (pci.ids)."""

_ADDRESS: Final = re.compile(r"([0-9a-f]{4,8}):([0-9a-f]{2}):([0-9a-f]{2})\.([0-7])", re.ASCII)

_GIVEN_AWAY: Final = frozenset({"vfio-pci", "pci-stub", "xen-pciback"})
"""Drivers that hold a device for a virtual machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Accelerator:
    """One GPU or similar device.

    Attributes:
        vendor: ``"nvidia"``, ``"amd"`` or ``"intel"``.
        address: Its PCI address as sysfs writes it (``0000:07:00.0``); ``""`` for one that only its UUID names.
        node: Its NUMA node, 0 where the machine says -1; ``None`` where it cannot be read.
        uuid: What a list of visible devices may call it (``GPU-...``, ``MIG-...``); ``""`` where not known.
        model: Its name; ``""`` where not known.
        instances: UUIDs of the parts (MIG) that it is divided into, where known.
    """

    vendor: str
    address: str
    node: int | None
    uuid: str = ""
    model: str = ""
    instances: tuple[str, ...] = ()


def read_accelerators(
    sys_root: str | os.PathLike[str] = "/sys", proc_root: str | os.PathLike[str] = "/proc"
) -> tuple[Accelerator, ...]:
    """Find the accelerators of a machine.

    NVIDIA's are those that the driver lists in /proc, less those that it was told to leave alone; if it lists none,
    those on the PCI bus. AMD's and Intel's are found on the PCI bus. What is held for a virtual machine is left out, as
    are virtual functions, and Intel's devices on bus 0, which are part of the processor.

    Args:
        sys_root: Where sysfs is.
        proc_root: Where procfs is.

    Returns:
        The accelerators by vendor (NVIDIA, AMD, Intel) and PCI address.

    Example:
        >>> from aioelastic._numa.devices import read_accelerators
        >>> read_accelerators("/no/such/place", "/no/such/place")
        ()
    """
    bus = Path(sys_root, "bus/pci/devices")
    by_driver = _listed_by_driver(Path(proc_root, "driver/nvidia/gpus"), bus)
    on_bus = [each for each in _found_on_bus(bus) if each.vendor != "nvidia" or not by_driver]
    usable = [each for each in by_driver.values() if each is not None]
    return tuple(sorted([*usable, *on_bus], key=pci_order))


def pci_order(accelerator: Accelerator) -> tuple[int, list[int]]:
    """Give what accelerators are sorted by: vendor, then PCI domain, bus, slot and function."""
    match = _ADDRESS.fullmatch(accelerator.address)
    place = [int(part, 16) for part in match.groups()] if match else []
    return list(VENDORS.values()).index(accelerator.vendor), place


def normal_address(text: str) -> str | None:
    """Give a PCI address as sysfs writes it, or ``None`` for what is none; NVIDIA's library has 8 digits of domain."""
    match = _ADDRESS.fullmatch(text.strip().lower())
    return None if match is None else f"{int(match[1], 16):04x}:{match[2]}:{match[3]}.{match[4]}"


def node_of(bus: Path, address: str) -> int | None:
    """Give the NUMA node of a PCI device; -1, which means that the firmware said nothing, is node 0."""
    node = read_number(bus / address / "numa_node")
    return None if node is None else max(node, 0)


def _listed_by_driver(directory: Path, bus: Path) -> dict[str, Accelerator | None]:
    """Give NVIDIA's GPUs that the driver lists by address; ``None`` for those that it leaves alone.

    In a container these are the GPUs that it was given, while sysfs shows those of the whole machine.
    """
    listed: dict[str, Accelerator | None] = {}
    for address in _names(directory):
        if normal_address(address) != address:
            continue
        facts = _facts(read_text(directory / address / "information") or "")
        uuid = facts.get("GPU UUID", "")
        listed[address] = Accelerator(
            vendor="nvidia",
            address=address,
            node=node_of(bus, address),
            # Question marks stand in it until the GPU was first used.
            uuid="" if "?" in uuid else uuid,
            model=facts.get("Model", ""),
        )
        if "Yes" in (facts.get("GPU Excluded"), facts.get("Blacklisted")):
            listed[address] = None
    return listed


def _facts(text: str) -> Mapping[str, str]:
    """Read lines of ``name: value``."""
    pairs = [line.partition(":") for line in text.splitlines()]
    return {name.strip(): value.strip() for name, _, value in pairs}


def _found_on_bus(bus: Path) -> Iterator[Accelerator]:
    """Give the accelerators among the PCI devices."""
    for address in _names(bus):
        device = bus / address
        vendor = VENDORS.get(read_number(device / "vendor", 16) or 0)
        kind = (read_number(device / "class", 16) or 0) >> 8
        if vendor is None or kind not in GPU_CLASSES or normal_address(address) != address:
            continue
        if _driver(device) in _GIVEN_AWAY or (device / "physfn").exists():
            continue
        if vendor == "intel" and address.startswith("0000:00:"):
            continue
        unique = read_text(device / "unique_id") if vendor == "amd" else None
        uuid = f"GPU-{unique.removeprefix('0x')}" if unique else ""
        yield Accelerator(vendor=vendor, address=address, node=node_of(bus, address), uuid=uuid)


def _driver(device: Path) -> str:
    try:
        return (device / "driver").readlink().name
    except OSError:
        return ""


def _names(directory: Path) -> list[str]:
    try:
        return sorted(path.name for path in directory.iterdir())
    except OSError:
        return []
