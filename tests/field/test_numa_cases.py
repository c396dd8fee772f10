"""Cases from the field: binding in restricted containers."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from aioelastic import AffinityMode, NumaBindingError, NumaOptions, start_processes
from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.programs import SLEEP, shells
from tests.helpers.sysfs import MachineTree, look, no_caches, no_node_directory, no_sysfs, plan, two_sockets

MODES = list(AffinityMode)


def without_core_lists(root: Path) -> MachineTree:
    """Make two sockets of which nothing tells the threads of a core."""
    tree = two_sockets(root)
    tree.remove("sys/devices/system/cpu/cpu*/topology/*")
    return tree


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("build", [no_sysfs, no_node_directory, no_caches, without_core_lists])
def test_half_a_sysfs_is_enough(tmp_path: Path, build: Callable[[Path], MachineTree], mode: AffinityMode) -> None:
    """Whatever a container hides of its machine, each rank is bound to CPUs that are allowed.

    https://github.com/sgl-project/sglang/issues/27368, https://github.com/vllm-project/vllm/issues/45438
    """
    bound = plan(look(build(tmp_path), "0-3"), mode, 2)

    assert all(rank.cpus and rank.cpus <= {0, 1, 2, 3} for rank in bound.ranks)


@pytest.mark.parametrize("loop", LOOPS)
def test_a_cpuset_of_one_cpu_binds_or_falls_back_with_words(loop: str) -> None:
    """With one CPU, ranks that cannot have one of their own run unbound, and warnings say what was applied.

    https://github.com/sgl-project/sglang/issues/27368
    """
    printed = run_driver(
        """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
class Print(logging.Handler):
    def emit(self, record):
        print(record.levelname, record.getMessage())
logging.getLogger("aioelastic").addHandler(Print())

async def main():
    options = NumaOptions("exclusive", should_fall_back_if_binding_fails=True)
    async with start_processes("job", "true", {0: (), 1: ()}, numa_options=options) as context:
        result = await context.wait()
    print(result.is_failed(), context.cpus)

run(main)
""",
        loop,
    )

    *warnings, outcome = printed.splitlines()
    assert outcome == "False {}"
    assert [line.startswith("WARNING rank ") and line.endswith("it runs unbound") for line in warnings] == [True, True]


async def test_a_refused_sched_setaffinity_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A sandbox that forbids binding is told as such, where the group is started, and leaves no rank.

    https://github.com/vllm-project/vllm/issues/45438
    """

    def refuse(pid: int, cpus: set[int]) -> None:
        refused.append(pid)
        raise PermissionError(1, "Operation not permitted", cpus)

    refused: list[int] = []
    monkeypatch.setattr(os, "sched_setaffinity", refuse)

    with pytest.raises(NumaBindingError, match=r"rank 0 cannot be bound .*refuses CPUs .*Operation not permitted"):
        await start_processes("job", "sh", shells(SLEEP, SLEEP), numa_options=NumaOptions(AffinityMode.NODE))

    assert len(refused) == 1
    with pytest.raises(ProcessLookupError):
        os.kill(refused[0], signal.SIGCONT)
