"""Which accelerators a program would see, and by which index (pure).

What the variables mean is in "CUDA Environment Variables" of NVIDIA's CUDA programming guide and in "GPU isolation
techniques" of AMD's ROCm documentation.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

from aioelastic._numa.devices import VENDORS, Accelerator

_INDEX: Final = re.compile(r"[+-]?[0-9]{1,9}", re.ASCII)

_Devices: TypeAlias = tuple[Accelerator, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleAccelerators:
    """What is left of a machine's accelerators for a program with certain variables.

    Attributes:
        devices: The visible ones in the order of their indices.
        notes: What is uncertain about them, in words.
    """

    devices: _Devices
    notes: tuple[str, ...] = ()


def select_visible(accelerators: Sequence[Accelerator], environ: Mapping[str, str]) -> VisibleAccelerators:
    """Apply the variables that hide and order accelerators.

    Of several vendors' devices one vendor's are the ranks': NVIDIA's before AMD's before Intel's. NVIDIA's are chosen
    by ``CUDA_VISIBLE_DEVICES``; AMD's by ``ROCR_VISIBLE_DEVICES`` and then, among what that leaves, by
    ``HIP_VISIBLE_DEVICES``, or ``CUDA_VISIBLE_DEVICES`` in its absence. A list holds indices or UUIDs, as its first
    entry does; a UUID may be shortened as long as one device has it. What comes after an entry that names no device
    is hidden, an entry given twice hides everything, and an empty list does so too: it asks for a job without GPUs.

    A part of a GPU (MIG) is a device of its own, on its GPU's node. CUDA shows a program the first one only; here all
    that are listed count, since a launcher's ranks have one each. A UUID that may be a device's, and cannot be looked
    up, gives a device with the node that all have in common, if they have one.

    Indices are in PCI order. That is what ``CUDA_DEVICE_ORDER=PCI_BUS_ID`` means, and what CUDA's own order
    ``FASTEST_FIRST`` is for GPUs of one model; for several models on several nodes a note says that it is uncertain.

    Args:
        accelerators: What is in the machine, as `read_accelerators` gives it.
        environ: The variables; nothing else of them is looked at.

    Returns:
        The visible ones.

    Example:
        >>> from aioelastic._numa.devices import Accelerator
        >>> from aioelastic._numa.visible import select_visible
        >>> gpus = [Accelerator(vendor="nvidia", address=f"0000:0{bus}:00.0", node=0) for bus in (1, 2)]
        >>> [gpu.address for gpu in select_visible(gpus, {"CUDA_VISIBLE_DEVICES": "1,0"}).devices]
        ['0000:02:00.0', '0000:01:00.0']
    """
    vendors = [vendor for vendor in VENDORS.values() if any(each.vendor == vendor for each in accelerators)]
    if not vendors:
        return VisibleAccelerators(devices=())
    notes = []
    if len(vendors) > 1:
        notes.append(f"there are accelerators of {' and '.join(vendors)}: the ranks' are those of {vendors[0]}")
    devices = tuple(each for each in accelerators if each.vendor == vendors[0])
    if _order_is_uncertain(devices, environ):
        notes.append(
            "CUDA puts the fastest of these different GPUs first, and PCI order was taken: "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID for both to be the same"
        )
    for variable in _variables(vendors[0], environ):
        devices = _select(devices, variable, environ[variable], notes)
    return VisibleAccelerators(devices=devices, notes=tuple(notes))


def _variables(vendor: str, environ: Mapping[str, str]) -> Iterator[str]:
    """Give the variables that are set and hide devices of a vendor, in the order in which they do."""
    if vendor == "amd":
        if "ROCR_VISIBLE_DEVICES" in environ:
            yield "ROCR_VISIBLE_DEVICES"
        if "HIP_VISIBLE_DEVICES" in environ:
            yield "HIP_VISIBLE_DEVICES"
            return
    if vendor in {"amd", "nvidia"} and "CUDA_VISIBLE_DEVICES" in environ:
        yield "CUDA_VISIBLE_DEVICES"


def _order_is_uncertain(devices: _Devices, environ: Mapping[str, str]) -> bool:
    by_uuid = environ.get("CUDA_VISIBLE_DEVICES", "").strip().startswith(("GPU-", "MIG-"))
    return (
        devices[0].vendor == "nvidia"
        and environ.get("CUDA_DEVICE_ORDER", "").strip() != "PCI_BUS_ID"
        and not by_uuid
        and len({each.model for each in devices}) > 1
        and len({each.node for each in devices}) > 1
    )


def _select(devices: _Devices, variable: str, value: str, notes: list[str]) -> _Devices:
    """Apply one list of visible devices."""
    entries = [entry.strip() for entry in value.split(",")]
    by_uuid = entries[0].startswith(("GPU-", "MIG-"))
    chosen: list[Accelerator] = []
    for entry in entries:
        device = _by_uuid(devices, entry) if by_uuid else _by_index(devices, entry)
        if device is None:
            if entry:
                notes.append(f"{entry!r} in {variable} names no device: it hides itself and what follows it")
            break
        if device in chosen:
            notes.append(f"{variable} names a device twice: it hides all of them")
            return ()
        if device.node is None:
            notes.append(f"the node of {entry!r} in {variable} is not known")
        chosen.append(device)
    return tuple(chosen)


def _by_index(devices: _Devices, entry: str) -> Accelerator | None:
    match = _INDEX.match(entry)
    index = int(match[0]) if match else -1
    return devices[index] if 0 <= index < len(devices) else None


def _by_uuid(devices: _Devices, entry: str) -> Accelerator | None:
    """Find a device, or a part of one, by the beginning of its UUID."""
    # The older name of a part is that of its GPU and two numbers.
    if parent := re.fullmatch(r"MIG-(GPU-[^/]+)(/[0-9]+){1,2}", entry):
        gpu = _by_uuid(devices, parent[1])
        return gpu and replace(gpu, uuid=entry, instances=())
    if entry.startswith("MIG-"):
        parts = [(gpu, uuid) for gpu in devices for uuid in gpu.instances if uuid.startswith(entry)]
        if len(parts) == 1:
            return replace(parts[0][0], uuid=parts[0][1], instances=())
        return None if any(gpu.instances for gpu in devices) else _nameless(devices, entry)
    if not entry.startswith("GPU-"):
        return None
    found = [gpu for gpu in devices if gpu.uuid.startswith(entry)]
    if len(found) == 1:
        return found[0]
    return None if found or all(gpu.uuid for gpu in devices) else _nameless(devices, entry)


def _nameless(devices: _Devices, entry: str) -> Accelerator | None:
    """Give a device of which the UUID is all that is known; its node, if there is just one for it to be on."""
    nodes = {device.node for device in devices}
    if not nodes:
        return None
    return Accelerator(vendor=devices[0].vendor, address="", node=nodes.pop() if len(nodes) == 1 else None, uuid=entry)
