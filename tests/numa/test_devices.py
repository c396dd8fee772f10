"""The accelerators of a machine, read from trees."""

from pathlib import Path

import pytest

from aioelastic._numa.devices import Accelerator, normal_address, read_accelerators
from tests.helpers.sysfs import AMD, INTEL, NVIDIA, MachineTree


@pytest.fixture(name="tree")
def _tree(tmp_path: Path) -> MachineTree:
    """Give a machine without anything."""
    return MachineTree(tmp_path)


def found(tree: MachineTree) -> list[tuple[str, str, int | None]]:
    """Give vendor, address and node of each accelerator."""
    return [(each.vendor, each.address, each.node) for each in read_accelerators(tree.sys, tree.proc)]


def test_nvidias_driver_tells_of_its_gpus(tree: MachineTree) -> None:
    """UUID and model come from /proc, the node from /sys."""
    tree.add_gpus([1])

    assert read_accelerators(tree.sys, tree.proc) == (
        Accelerator(vendor="nvidia", address="0000:01:00.0", node=1, uuid="GPU-00000000-1111", model="NVIDIA A100"),
    )


def test_nothing_is_there(tree: MachineTree) -> None:
    """Without /sys and /proc there is no accelerator."""
    assert found(tree) == []


@pytest.mark.parametrize("kind", [0x0300, 0x0302, 0x0380, 0x1200])
@pytest.mark.parametrize(("vendor", "name"), [(NVIDIA, "nvidia"), (AMD, "amd"), (INTEL, "intel")])
def test_accelerators_are_found_on_the_bus(tree: MachineTree, vendor: int, name: str, kind: int) -> None:
    """Each of the classes counts for each of the vendors."""
    tree.add_pci("0000:c1:00.0", 1, vendor=vendor, kind=kind)

    assert found(tree) == [(name, "0000:c1:00.0", 1)]


@pytest.mark.parametrize(
    ("vendor", "kind"),
    [
        (NVIDIA, 0x0403),  # a GPU's own sound
        (NVIDIA, 0x0680),  # NVSwitch
        (AMD, 0x0600),  # a bridge
        (INTEL, 0x0200),  # a network card
        (0x1A03, 0x0300),  # a server's management screen
        (0x102B, 0x0300),
    ],
)
def test_other_devices_are_none(tree: MachineTree, vendor: int, kind: int) -> None:
    """Neither the other functions of a GPU nor other vendors' screens count."""
    tree.add_pci("0000:c1:00.0", 0, vendor=vendor, kind=kind)

    assert found(tree) == []


def test_what_is_part_of_an_intel_processor_is_none(tree: MachineTree) -> None:
    """Intel's devices on bus 0 are no accelerators; AMD's and NVIDIA's may be, in a virtual machine."""
    tree.add_pci("0000:00:02.0", 0, vendor=INTEL, kind=0x0300)
    tree.add_pci("0000:00:0b.0", 0, vendor=INTEL, kind=0x1200)
    tree.add_pci("0000:00:1e.0", 0, vendor=NVIDIA)
    tree.add_pci("0000:4d:00.0", 0, vendor=INTEL, kind=0x0380)

    assert [address for _, address, _ in found(tree)] == ["0000:00:1e.0", "0000:4d:00.0"]


@pytest.mark.parametrize("driver", ["vfio-pci", "pci-stub", "xen-pciback"])
def test_devices_held_for_a_virtual_machine_are_none(tree: MachineTree, driver: str) -> None:
    """No program here can use them, whichever vendor's they are."""
    for bus, vendor in enumerate((NVIDIA, AMD, INTEL), 1):
        (tree.add_pci(f"0000:0{bus}:00.0", 0, vendor=vendor) / "driver").symlink_to(f"../../drivers/{driver}")
    (tree.add_pci("0000:04:00.0", 0, vendor=AMD) / "driver").symlink_to("../../drivers/amdgpu")

    assert found(tree) == [("amd", "0000:04:00.0", 0)]


def test_virtual_functions_are_none(tree: MachineTree) -> None:
    """A part of a GPU made for a virtual machine names the function that it is a part of."""
    tree.add_pci("0000:01:00.0", 0)
    (tree.add_pci("0000:01:00.4", 0) / "physfn").symlink_to("../0000:01:00.0")

    assert found(tree) == [("nvidia", "0000:01:00.0", 0)]


def test_in_a_container_the_drivers_list_counts(tree: MachineTree) -> None:
    """The bus shows all GPUs of the host, the driver's list those of the container; AMD's are not hidden by it."""
    for bus in (1, 2, 3):
        tree.add_pci(f"0000:0{bus}:00.0", bus)
    tree.add_pci("0000:04:00.0", 0, vendor=AMD)
    tree.add_driver_entry("0000:02:00.0", uuid="GPU-2")

    assert found(tree) == [("nvidia", "0000:02:00.0", 2), ("amd", "0000:04:00.0", 0)]


def test_gpus_that_the_driver_leaves_alone_are_none(tree: MachineTree) -> None:
    """An excluded GPU counts in neither list."""
    tree.add_gpus([0, 1])
    tree.add_driver_entry("0000:01:00.0", uuid="GPU-1", excluded="Yes")

    assert found(tree) == [("nvidia", "0000:02:00.0", 1)]


def test_gpus_whose_pci_entries_are_hidden_have_no_known_node(tree: MachineTree) -> None:
    """Half a sysfs: the driver knows the GPU, nothing knows its node."""
    tree.add_driver_entry("0000:01:00.0", uuid="GPU-1")

    assert found(tree) == [("nvidia", "0000:01:00.0", None)]


@pytest.mark.parametrize(("text", "node"), [("-1", 0), ("0", 0), ("3", 3), ("", None), ("none", None)])
def test_a_node_of_minus_one_is_node_0(tree: MachineTree, text: str, node: int | None) -> None:
    """-1 says that the firmware said nothing; what is no number is not known."""
    tree.add_pci("0000:01:00.0", text)

    assert found(tree) == [("nvidia", "0000:01:00.0", node)]


def test_a_uuid_of_question_marks_is_not_known(tree: MachineTree) -> None:
    """The driver does not know the UUID of a GPU that nobody used yet."""
    tree.add_driver_entry("0000:01:00.0", uuid="GPU-????????-????-????-????-????????????")

    assert read_accelerators(tree.sys, tree.proc)[0].uuid == ""


def test_amds_unique_id_is_a_uuid(tree: MachineTree) -> None:
    """ROCm calls a GPU GPU- and the driver's hexadecimal number; not all models have one."""
    tree.write(tree.add_pci("0000:01:00.0", 0, vendor=AMD) / "unique_id", "18f68e602b8a790f")
    tree.add_pci("0000:02:00.0", 0, vendor=AMD)

    assert [each.uuid for each in read_accelerators(tree.sys, tree.proc)] == ["GPU-18f68e602b8a790f", ""]


def test_the_order_is_that_of_pci_numbers(tree: MachineTree) -> None:
    """Vendors first, then domain, bus, slot and function as numbers, longer domains after shorter ones."""
    addresses = ["10000:01:00.0", "0001:01:00.0", "0000:e1:00.0", "0000:21:1f.0", "0000:21:02.0"]
    for address in addresses:
        tree.add_pci(address, 0)
    tree.add_pci("0000:01:00.0", 0, vendor=AMD)

    assert [address for _, address, _ in found(tree)] == [*reversed(addresses), "0000:01:00.0"]


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("0000:01:00.0", "0000:01:00.0"),
        ("00000000:C1:00.0", "0000:c1:00.0"),
        ("00010000:01:00.0\n", "10000:01:00.0"),
        ("01:00.0", None),
        ("0000:01:00.8", None),
        ("", None),
    ],
)
def test_addresses_have_one_form(text: str, address: str | None) -> None:
    """NVIDIA's library writes long domains and capitals; sysfs does not."""
    assert normal_address(text) == address


@pytest.mark.parametrize("name", ["class", "vendor", "numa_node"])
@pytest.mark.parametrize("text", [b"", b"\xff", b"0x", b"1\n2\n"])
def test_strange_files_break_nothing(tree: MachineTree, name: str, text: bytes) -> None:
    """A device whose files make no sense is no accelerator, or has no known node."""
    (tree.add_pci("0000:01:00.0", 0) / name).write_bytes(text)
    tree.add_pci("0000:02:00.0", 1)

    assert found(tree)[-1] == ("nvidia", "0000:02:00.0", 1)


def test_strange_names_break_nothing(tree: MachineTree) -> None:
    """Entries that are no devices, and a driver's list without content, are passed over."""
    tree.write(tree.pci / "README", "")
    tree.write(tree.proc / "driver/nvidia/gpus/README/information", "Model: none")
    (tree.proc / "driver/nvidia/gpus/0000:07:00.0").mkdir()

    assert found(tree) == [("nvidia", "0000:07:00.0", None)]


def test_this_machine_is_read() -> None:
    """On a real machine, whatever is found has a place on the bus."""
    for accelerator in read_accelerators():
        assert Path("/sys/bus/pci/devices", accelerator.address).exists()
