"""What NVIDIA's own library knows about its GPUs and /proc does not tell; only where it is installed."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, TypeAlias

from aioelastic._numa.devices import Accelerator, normal_address, pci_order


@dataclass(frozen=True, slots=True, kw_only=True)
class NvmlGpu:
    """One GPU as the library tells of it.

    Attributes:
        address: Its PCI address as sysfs writes it.
        uuid: Its UUID.
        node: The NUMA node whose memory is nearest, or ``None`` where the library does not say.
        model: Its name.
        instances: UUIDs of its parts (MIG).
    """

    address: str
    uuid: str = ""
    node: int | None = None
    model: str = ""
    instances: tuple[str, ...] = ()


NvmlQuery: TypeAlias = Callable[[], tuple[NvmlGpu, ...]]
"""Asks the library; `query_nvml` is the real one."""


def query_nvml() -> tuple[NvmlGpu, ...]:
    """Ask NVIDIA's management library through ``nvidia-ml-py``, if both are there.

    It is imported here and nowhere else. Initialising the library can take a second, as it wakes the GPUs up: it is
    asked only for what the files do not tell.

    Returns:
        The GPUs; none when the package is not installed, or the driver's library not there or not willing.
    """
    try:
        nvml = import_module("pynvml")
    except (ImportError, Warning):
        # A retired package of the same name warns when it is imported, and warnings may be errors.
        return ()
    gpus: list[NvmlGpu] = []
    with suppress(nvml.NVMLError, AttributeError):
        nvml.nvmlInit()
        try:
            for index in range(nvml.nvmlDeviceGetCount()):
                gpus.extend(_gpu(nvml, nvml.nvmlDeviceGetHandleByIndex(index)))
        finally:
            nvml.nvmlShutdown()
    return tuple(gpus)


def _gpu(nvml: Any, handle: Any) -> Iterator[NvmlGpu]:
    address = normal_address(_text(nvml.nvmlDeviceGetPciInfo(handle).busId))
    if address is None:
        return
    uuid = model = ""
    with suppress(nvml.NVMLError, AttributeError):
        uuid = _text(nvml.nvmlDeviceGetUUID(handle))
        model = _text(nvml.nvmlDeviceGetName(handle))
    yield NvmlGpu(
        address=address, uuid=uuid, model=model, node=_node(nvml, handle), instances=tuple(_instances(nvml, handle))
    )


def _node(nvml: Any, handle: Any) -> int | None:
    """Give the only node in the GPU's mask of near memory."""
    with suppress(nvml.NVMLError, AttributeError):
        # One word of 64 bits; no machine has as many nodes with GPUs.
        mask = nvml.nvmlDeviceGetMemoryAffinity(handle, 1, nvml.NVML_AFFINITY_SCOPE_NODE)[0]
        nodes = [node for node in range(64) if mask >> node & 1]
        if len(nodes) == 1:
            return nodes[0]
    return None


def _instances(nvml: Any, handle: Any) -> Iterator[str]:
    with suppress(nvml.NVMLError, AttributeError):
        for index in range(nvml.nvmlDeviceGetMaxMigDeviceCount(handle)):
            with suppress(nvml.NVMLError):
                part = nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, index)
                yield _text(nvml.nvmlDeviceGetUUID(part))


def _text(value: str | bytes) -> str:
    """Give text; older versions of the package give bytes."""
    return value.decode(errors="replace") if isinstance(value, bytes) else value


def complete_by_nvml(accelerators: Iterable[Accelerator], gpus: Iterable[NvmlGpu]) -> tuple[Accelerator, ...]:
    """Fill in what the files did not tell; what they told stays.

    Args:
        accelerators: What was read.
        gpus: What the library said.

    Returns:
        The accelerators by vendor and PCI address, those that only the library knows included.
    """
    found = {each.address: each for each in accelerators}
    for gpu in gpus:
        known = found.get(gpu.address) or Accelerator(vendor="nvidia", address=gpu.address, node=None)
        found[gpu.address] = replace(
            known,
            node=gpu.node if known.node is None else known.node,
            uuid=known.uuid or gpu.uuid,
            model=known.model or gpu.model,
            instances=known.instances or gpu.instances,
        )
    return tuple(sorted(found.values(), key=pci_order))
