"""What NVIDIA's library adds, and when it is asked; played by a module of the same name."""

import sys
import warnings
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aioelastic._numa.devices import Accelerator
from aioelastic._numa.machine import Machine, read_machine
from aioelastic._numa.nvml import NvmlGpu, complete_by_nvml, query_nvml
from tests.helpers.sysfs import AMD, MachineTree, build_tree


class FakeNvmlError(Exception):
    """What the library raises."""


class FakeNvml(ModuleType):
    """The functions of ``pynvml`` that are used, for two GPUs, the second divided into two parts."""

    NVMLError = FakeNvmlError
    NVML_AFFINITY_SCOPE_NODE = 0

    def __init__(self, *, text: type = str, broken: tuple[str, ...] = ()) -> None:
        super().__init__("pynvml")
        self.open = 0
        self._text = text
        for name in broken:
            setattr(self, name, self._fail)

    @staticmethod
    def _fail(*_: object) -> Any:
        raise FakeNvmlError

    def _said(self, text: str) -> str | bytes:
        return text.encode() if self._text is bytes else text

    def nvmlInit(self) -> None:  # noqa: N802, D102
        self.open += 1

    def nvmlShutdown(self) -> None:  # noqa: N802, D102
        self.open -= 1

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802, D102
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> str:  # noqa: N802, D102
        return f"GPU-{index}"

    def nvmlDeviceGetPciInfo(self, handle: str) -> Any:  # noqa: N802, D102
        return SimpleNamespace(busId=self._said(f"00000000:0{handle[-1]}:00.0"))

    def nvmlDeviceGetUUID(self, handle: str) -> str | bytes:  # noqa: N802, D102
        return self._said(handle)

    def nvmlDeviceGetName(self, handle: str) -> str | bytes:  # noqa: ARG002, N802, D102
        return self._said("A100")

    def nvmlDeviceGetMemoryAffinity(self, handle: str, words: int, scope: int) -> list[int]:  # noqa: N802, D102
        assert (words, scope) == (1, 0)
        return [1 << int(handle[-1])]

    def nvmlDeviceGetMaxMigDeviceCount(self, handle: str) -> int:  # noqa: N802, D102
        return 3 * int(handle[-1])

    def nvmlDeviceGetMigDeviceHandleByIndex(self, handle: str, index: int) -> str:  # noqa: N802, D102
        return self._fail() if index == 1 else f"MIG-{handle[-1]}{index}"


BOTH = (
    NvmlGpu(address="0000:00:00.0", uuid="GPU-0", node=0, model="A100"),
    NvmlGpu(address="0000:01:00.0", uuid="GPU-1", node=1, model="A100", instances=("MIG-10", "MIG-12")),
)


def install(monkeypatch: pytest.MonkeyPatch, module: ModuleType | None) -> None:
    """Make the module what ``import pynvml`` gives; ``None`` for an error."""
    monkeypatch.setitem(sys.modules, "pynvml", module)


@pytest.mark.parametrize("text", [str, bytes])
def test_the_library_tells_all(monkeypatch: pytest.MonkeyPatch, text: type) -> None:
    """Address, UUID, model, node and parts, as text or, in older versions, as bytes; and it is shut down."""
    nvml = FakeNvml(text=text)
    install(monkeypatch, nvml)

    assert query_nvml() == BOTH
    assert nvml.open == 0


def test_it_need_not_be_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the package there are no GPUs to tell of."""
    install(monkeypatch, None)

    assert query_nvml() == ()


def test_a_retired_package_of_the_name_is_as_good_as_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """One that warns when imported does no harm where warnings are errors."""
    monkeypatch.delitem(sys.modules, "pynvml", raising=False)
    (tmp_path / "pynvml.py").write_text("import warnings\nwarnings.warn('retired', FutureWarning)\n")
    monkeypatch.syspath_prepend(tmp_path)

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert query_nvml() == ()
    assert "pynvml" not in sys.modules


@pytest.mark.parametrize("broken", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetHandleByIndex"])
def test_a_library_that_does_not_work_tells_nothing(monkeypatch: pytest.MonkeyPatch, broken: str) -> None:
    """No driver, or no permission: there is nothing to tell, and what was opened is closed."""
    nvml = FakeNvml(broken=(broken,))
    install(monkeypatch, nvml)

    assert query_nvml() == ()
    assert nvml.open == 0


def test_a_library_tells_what_it_can(monkeypatch: pytest.MonkeyPatch) -> None:
    """Older drivers know neither memory affinity nor parts."""
    broken = ("nvmlDeviceGetMemoryAffinity", "nvmlDeviceGetMaxMigDeviceCount", "nvmlDeviceGetName")
    install(monkeypatch, FakeNvml(broken=broken))

    assert query_nvml() == (
        NvmlGpu(address="0000:00:00.0", uuid="GPU-0"),
        NvmlGpu(address="0000:01:00.0", uuid="GPU-1"),
    )


def test_what_makes_no_sense_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """A GPU without a PCI address is none, and one that is near several nodes has no known node."""
    nvml = FakeNvml()
    monkeypatch.setattr(
        nvml, "nvmlDeviceGetPciInfo", lambda gpu: SimpleNamespace(busId="0000:01:00.0" if gpu == "GPU-1" else "?")
    )
    monkeypatch.setattr(nvml, "nvmlDeviceGetMemoryAffinity", lambda *_: [0b1010])
    install(monkeypatch, nvml)

    assert [(gpu.uuid, gpu.node) for gpu in query_nvml()] == [("GPU-1", None)]


def test_what_files_told_stays() -> None:
    """The library fills in what is missing, and adds GPUs that only it knows, in PCI order."""
    known = Accelerator(vendor="nvidia", address="0000:01:00.0", node=3, model="A30")

    assert complete_by_nvml([known], BOTH) == (
        Accelerator(vendor="nvidia", address="0000:00:00.0", node=0, uuid="GPU-0", model="A100"),
        Accelerator(
            vendor="nvidia",
            address="0000:01:00.0",
            node=3,
            uuid="GPU-1",
            model="A30",
            instances=("MIG-10", "MIG-12"),
        ),
    )


class TestAsking:
    """When `read_machine` asks the library."""

    @staticmethod
    def read(tree: MachineTree, **variables: str) -> tuple[Machine, bool]:
        """Read the machine, and tell whether the library was asked."""
        asked = []

        def query() -> tuple[NvmlGpu, ...]:
            asked.append(True)
            return BOTH

        machine = read_machine(variables, range(4), sys_root=tree.sys, proc_root=tree.proc, nvml=query)
        return machine, bool(asked)

    @pytest.mark.parametrize("variables", [{}, {"CUDA_VISIBLE_DEVICES": "1"}, {"CUDA_VISIBLE_DEVICES": "GPU-0001"}])
    def test_not_when_the_files_tell_all(self, tmp_path: Path, variables: dict[str, str]) -> None:
        """Waking GPUs up takes a second: it is not done for nothing."""
        tree = build_tree(tmp_path)
        tree.add_gpus([0, 0])

        assert not self.read(tree, **variables)[1]

    def test_not_on_a_machine_without_the_driver(self, tmp_path: Path) -> None:
        """Without NVIDIA's driver, and with AMD's GPUs, there is nothing to ask."""
        tree = build_tree(tmp_path)
        tree.add_pci("0000:01:00.0", 0, vendor=AMD)

        assert not self.read(tree, CUDA_VISIBLE_DEVICES="MIG-1")[1]

    def test_for_the_parts_of_gpus(self, tmp_path: Path) -> None:
        """No file tells the UUIDs of parts."""
        tree = build_tree(tmp_path, sockets=2)
        tree.add_gpus([1, 1])

        machine, asked = self.read(tree, CUDA_VISIBLE_DEVICES="MIG-12")

        assert asked
        assert [(part.address, part.node, part.uuid) for part in machine.devices] == [("0000:01:00.0", 1, "MIG-12")]

    def test_for_gpus_whose_node_is_hidden(self, tmp_path: Path) -> None:
        """The library knows the memory that is near."""
        tree = build_tree(tmp_path, sockets=2)
        tree.add_driver_entry("0000:01:00.0", uuid="GPU-1")

        machine, asked = self.read(tree)

        assert asked
        assert machine.devices[1].node == 1

    def test_for_uuids_that_are_hidden(self, tmp_path: Path) -> None:
        """On the bus there are no UUIDs."""
        tree = build_tree(tmp_path, sockets=2)
        tree.add_pci("0000:00:00.0", 0)
        tree.add_pci("0000:01:00.0", 1)

        machine, asked = self.read(tree, CUDA_VISIBLE_DEVICES="GPU-1")

        assert asked
        assert [device.address for device in machine.devices] == ["0000:01:00.0"]

    def test_for_a_driver_without_gpus(self, tmp_path: Path) -> None:
        """The driver is there, and neither its list nor the bus is."""
        tree = MachineTree(tmp_path)
        tree.write(tree.proc / "driver/nvidia/version", "NVRM")

        assert self.read(tree)[1]
