"""Which accelerators are seen, and by which index."""

from dataclasses import replace

import pytest

from aioelastic._numa.devices import Accelerator
from aioelastic._numa.visible import select_visible

GPUS = tuple(
    Accelerator(vendor="nvidia", address=f"0000:0{index}:00.0", node=index // 2, uuid=uuid, model="A100")
    for index, uuid in enumerate(["GPU-aa11", "GPU-aa22", "GPU-bb33", "GPU-cc44"])
)
"""Two GPUs on each of two nodes."""

AMDS = tuple(replace(gpu, vendor="amd", model="") for gpu in GPUS)
INTELS = tuple(replace(gpu, vendor="intel", uuid="", model="") for gpu in GPUS)


def seen(gpus: tuple[Accelerator, ...], **variables: str) -> list[int]:
    """Give the places of the visible ones among all."""
    return [gpus.index(device) for device in select_visible(gpus, variables).devices]


@pytest.mark.parametrize(
    ("value", "indices"),
    [
        ("0,1,2,3", [0, 1, 2, 3]),
        ("2,1", [2, 1]),
        (" 3 , 0 ", [3, 0]),
        ("", []),
        (" ", []),
        ("-1", []),
        ("0,2,-1,1", [0, 2]),
        ("0,4,1", [0]),
        ("4", []),
        ("1,", [1]),
        (",1", []),
        ("0,x,1", [0]),
        ("NoDevFiles", []),
        ("1,1", []),
        ("0,1,0", []),
        ("+1", [1]),
        ("99999999999999999999", []),
        ("GPU-aa11", [0]),
        ("GPU-cc44,GPU-aa22", [3, 1]),
        ("GPU-b", [2]),
        ("GPU-aa", []),
        ("GPU-cc,GPU-aa,GPU-bb", [3]),
        ("GPU-dd,GPU-aa11", []),
        ("GPU-bb,1", [2]),
        ("1,GPU-bb", [1]),
        ("GPU-bb,GPU-bb33", []),
        ("gpu-bb", []),
    ],
)
@pytest.mark.parametrize(
    ("gpus", "variable"),
    [
        (GPUS, "CUDA_VISIBLE_DEVICES"),
        (AMDS, "HIP_VISIBLE_DEVICES"),
        (AMDS, "CUDA_VISIBLE_DEVICES"),
        (AMDS, "ROCR_VISIBLE_DEVICES"),
    ],
)
def test_a_list_selects_and_orders(
    gpus: tuple[Accelerator, ...], variable: str, value: str, indices: list[int]
) -> None:
    """Indices or UUIDs, up to the first that names no device; a device given twice hides all."""
    assert seen(gpus, **{variable: value}) == indices


@pytest.mark.parametrize("gpus", [GPUS, AMDS, INTELS])
def test_without_variables_all_are_seen(gpus: tuple[Accelerator, ...]) -> None:
    """Nothing is hidden unless asked for."""
    assert seen(gpus) == [0, 1, 2, 3]


def test_variables_of_others_change_nothing() -> None:
    """HIP's variable is nothing to NVIDIA's GPUs, and neither is anything to Intel's."""
    assert seen(GPUS, HIP_VISIBLE_DEVICES="0", ROCR_VISIBLE_DEVICES="") == [0, 1, 2, 3]
    assert seen(INTELS, HIP_VISIBLE_DEVICES="0", CUDA_VISIBLE_DEVICES="1") == [0, 1, 2, 3]


def test_hips_variable_wins_over_cudas() -> None:
    """For AMD's GPUs, CUDA's variable counts in the absence of HIP's only, also of an empty one."""
    assert seen(AMDS, HIP_VISIBLE_DEVICES="2", CUDA_VISIBLE_DEVICES="0") == [2]
    assert seen(AMDS, HIP_VISIBLE_DEVICES="", CUDA_VISIBLE_DEVICES="0") == []


def test_hips_variable_counts_among_what_rocr_leaves() -> None:
    """The lower layer hides first, and the upper layer's indices are those of what is left."""
    assert seen(AMDS, ROCR_VISIBLE_DEVICES="3,1", HIP_VISIBLE_DEVICES="1") == [1]
    assert seen(AMDS, ROCR_VISIBLE_DEVICES="3,1", HIP_VISIBLE_DEVICES="2") == []
    assert seen(AMDS, ROCR_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="MIG-1") == []
    assert seen(AMDS, ROCR_VISIBLE_DEVICES="", HIP_VISIBLE_DEVICES="0") == []


def test_no_accelerators() -> None:
    """There is nothing to see, whatever is listed."""
    assert seen((), CUDA_VISIBLE_DEVICES="0") == []


def test_one_vendors_are_the_ranks() -> None:
    """NVIDIA's come before AMD's before Intel's, and that is said."""
    amds = tuple(replace(gpu, address=f"0001{gpu.address[4:]}") for gpu in AMDS)
    visible = select_visible([*INTELS, *amds, *GPUS], {"CUDA_VISIBLE_DEVICES": "0"})

    assert visible.devices == GPUS[:1]
    assert visible.notes == ("there are accelerators of nvidia and amd and intel: the ranks' are those of nvidia",)
    assert select_visible([*INTELS, *amds], {}).devices == amds


class TestParts:
    """Parts of GPUs (MIG)."""

    def test_the_older_name_is_the_gpus(self) -> None:
        """A part named by its GPU and two numbers is on that GPU's node; each listed part is a device."""
        value = "MIG-GPU-bb33/1/0,MIG-GPU-bb33/2/0,MIG-GPU-aa1/1/0"

        devices = select_visible(GPUS, {"CUDA_VISIBLE_DEVICES": value}).devices

        assert [(part.address, part.node, part.uuid) for part in devices] == [
            ("0000:02:00.0", 1, "MIG-GPU-bb33/1/0"),
            ("0000:02:00.0", 1, "MIG-GPU-bb33/2/0"),
            ("0000:00:00.0", 0, "MIG-GPU-aa1/1/0"),
        ]

    @pytest.mark.parametrize("value", ["MIG-GPU-dd/1/0", "MIG-GPU-aa/1/0", "MIG-1"])
    def test_a_part_of_no_gpu_is_none(self, value: str) -> None:
        """Neither of a GPU that is not there, nor of one that may be two, nor one that nobody has."""
        gpus = [replace(GPUS[0], instances=("MIG-77",)), *GPUS[1:]]

        assert select_visible(gpus, {"CUDA_VISIBLE_DEVICES": value}).devices == ()

    def test_known_uuids_find_their_gpu(self) -> None:
        """The parts' own UUIDs may be shortened, too."""
        gpus = [GPUS[0], replace(GPUS[3], instances=("MIG-77", "MIG-88"))]

        devices = select_visible(gpus, {"CUDA_VISIBLE_DEVICES": "MIG-8,MIG-77"}).devices

        assert [(part.address, part.node, part.uuid) for part in devices] == [
            ("0000:03:00.0", 1, "MIG-88"),
            ("0000:03:00.0", 1, "MIG-77"),
        ]

    def test_unknown_uuids_are_on_the_only_node(self) -> None:
        """Where all GPUs are on one node, a part is there; elsewhere its node is not known, and that is said."""
        near = select_visible(GPUS[2:], {"CUDA_VISIBLE_DEVICES": "MIG-77,MIG-88"})
        far = select_visible(GPUS, {"CUDA_VISIBLE_DEVICES": "MIG-77"})

        assert [(part.node, part.uuid) for part in near.devices] == [(1, "MIG-77"), (1, "MIG-88")]
        assert [part.node for part in far.devices] == [None]
        assert far.notes == ("the node of 'MIG-77' in CUDA_VISIBLE_DEVICES is not known",)


def test_a_uuid_that_cannot_be_looked_up_may_be_any() -> None:
    """When UUIDs are missing, the device is somewhere among the GPUs."""
    gpus = [replace(gpu, uuid="") for gpu in GPUS]

    assert [each.node for each in select_visible(gpus, {"CUDA_VISIBLE_DEVICES": "GPU-aa"}).devices] == [None]
    assert [each.node for each in select_visible(gpus[:2], {"CUDA_VISIBLE_DEVICES": "GPU-aa"}).devices] == [0]


@pytest.mark.parametrize(
    ("variables", "uncertain"),
    [
        ({}, True),
        ({"CUDA_DEVICE_ORDER": "FASTEST_FIRST"}, True),
        ({"CUDA_VISIBLE_DEVICES": "1"}, True),
        ({"CUDA_DEVICE_ORDER": "PCI_BUS_ID"}, False),
        ({"CUDA_VISIBLE_DEVICES": "GPU-aa11,GPU-cc"}, False),
    ],
)
def test_cudas_own_order_is_uncertain(variables: dict[str, str], uncertain: bool) -> None:
    """PCI order is taken always; a note says so where CUDA may order different GPUs by speed."""
    gpus = [replace(GPUS[0], model="T4"), *GPUS[1:]]

    visible = select_visible(gpus, variables)

    assert any("CUDA_DEVICE_ORDER=PCI_BUS_ID" in note for note in visible.notes) == uncertain
    assert list(visible.devices) == sorted(visible.devices, key=lambda gpu: gpu.address)


def test_an_order_that_makes_no_difference_is_not_noted() -> None:
    """GPUs of one model, or of one node, are as good in any order."""
    mixed = [replace(GPUS[0], model="T4"), GPUS[1]]

    assert select_visible(GPUS, {}).notes == select_visible(mixed, {}).notes == ()
