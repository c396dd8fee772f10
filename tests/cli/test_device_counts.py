"""How many ranks a word in place of a number means, on machines that are not there."""

import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from aioelastic._cli.device_counts import count_ranks
from aioelastic._errors.exceptions import SpecificationError
from aioelastic._numa.machine import Machine
from tests.helpers.sysfs import AMD, INTEL, build_tree, look


def test_counting_processors(tmp_path: Path) -> None:
    """``cpu`` is the allowance, and so is ``auto`` where there is no accelerator."""
    machine = look(build_tree(tmp_path, cores=8), "0-2")

    assert count_ranks("auto", {}, lambda _: machine) == (3, ("--nproc-per-node auto: 3 ranks, one per CPU",))
    assert count_ranks("cpu", {})[0] == len(os.sched_getaffinity(0))
    assert count_ranks("auto", {"CUDA_VISIBLE_DEVICES": ""})[0] >= 1
    assert count_ranks(5, {}) == (5, ())


def test_a_number_beyond_the_limit_of_open_files_is_refused_at_once() -> None:
    """Each rank takes at least one; with a digit too many the launcher would fill its memory before it says so."""
    with pytest.raises(SpecificationError, match=r"^--nproc-per-node 9999999999 needs more than 9999999999 open files"):
        count_ranks(9_999_999_999, {})


def test_counting_processors_where_there_is_no_allowance(monkeypatch: pytest.MonkeyPatch) -> None:
    """Some systems do not tell which processors are a process's: then all are."""
    monkeypatch.delattr(os, "sched_getaffinity")

    assert count_ranks("cpu", {})[0] == os.cpu_count()


def test_counting_gpus(tmp_path: Path) -> None:
    """``gpu`` and ``auto`` are those that are visible, and all of them hidden are an error that says by what."""
    tree = build_tree(tmp_path)
    tree.add_gpus([0, 0, 0])

    def look_at(environ: Mapping[str, str]) -> Machine:
        return look(tree, "0-3", **environ)

    two, none, strange = ({"CUDA_VISIBLE_DEVICES": value} for value in ("2,0", "", "1,9"))
    assert count_ranks("gpu", two, look_at) == (2, ("--nproc-per-node gpu: 2 ranks, one per GPU",))
    assert count_ranks("auto", {}, look_at) == (3, ("--nproc-per-node auto: 3 ranks, one per accelerator",))
    assert count_ranks("auto", none, look_at)[0] == 4
    number, notes = count_ranks("gpu", strange, look_at)
    assert (number, notes[0][:29]) == (1, "'9' in CUDA_VISIBLE_DEVICES n")
    with pytest.raises(
        SpecificationError, match=r"^--nproc-per-node gpu .* all 3 are hidden by CUDA_VISIBLE_DEVICES=:"
    ):
        count_ranks("gpu", none, look_at)
    with pytest.raises(
        SpecificationError, match=r"^--nproc-per-node xpu .* none is found \(see aioelastic numa\): give"
    ):
        count_ranks("xpu", {}, look_at)


def test_counting_accelerators_of_other_makers(tmp_path: Path) -> None:
    """AMD's are GPUs, Intel's are not but count as ``xpu``, next to others' too."""
    tree = build_tree(tmp_path)
    tree.add_pci("0000:41:00.0", 0, vendor=INTEL)
    alone = look(tree, "0-3")
    tree.add_pci("0000:42:00.0", 0, vendor=AMD)
    both = look(tree, "0-3")

    assert [count_ranks(kind, {}, lambda _: alone)[0] for kind in ("xpu", "auto")] == [1, 1]
    assert [count_ranks(kind, {}, lambda _: both)[0] for kind in ("xpu", "gpu", "auto")] == [1, 1, 1]
    with pytest.raises(SpecificationError, match="asks for one rank per GPU"):
        count_ranks("gpu", {}, lambda _: alone)
