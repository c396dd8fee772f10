"""Binding real ranks to the CPUs of this machine."""

import asyncio
import logging
import os
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from aioelastic import (
    AffinityMode,
    NumaBindingError,
    NumaOptions,
    RankStartError,
    SpecificationTypeError,
    Std,
    get_subprocess_handler,
    start_processes,
)
from tests.helpers.affinities import where
from tests.helpers.drivers import run_driver
from tests.helpers.groups import shell_group
from tests.helpers.leaks import descendants
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import is_alive

CPUS = sorted(os.sched_getaffinity(0))
"""What this program may use."""

EXCLUSIVE = NumaOptions(AffinityMode.EXCLUSIVE)
"""Gives each of two ranks CPUs of its own."""

METHODS = ("spawn", "fork", "forkserver")

TELLS = "sed -n 's/^Cpus_allowed_list:[^0-9]*//p' /proc/self/status"
"""Prints the CPUs that a shell's children may use."""

needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="two ranks need two CPUs to be told apart")


def cpu_set(text: str) -> set[int]:
    """Read a list as the kernel prints it."""
    ends = [part.partition("-") for part in text.strip().split(",")]
    return {cpu for first, _, last in ends for cpu in range(int(first), int(last or first) + 1)}


class TestCommands:
    """Ranks that run a command."""

    @needs_two_cpus
    async def test_each_has_cpus_of_its_own_from_its_first_instruction(self, tmp_path: Path) -> None:
        """What a rank sees at once is what the context tells, and two exclusive ranks share no CPU."""
        options: dict[str, Any] = {"numa_options": EXCLUSIVE, "log_dir": tmp_path, "redirects": Std.ALL}
        async with start_processes("bound", "sh", shells(TELLS, TELLS), **options) as context:
            result = await context.wait(timeout=30)

        assert result is not None
        seen = {rank: cpu_set(Path(path).read_text()) for rank, path in result.stdouts.items()}
        assert seen == {rank: set(cpus) for rank, cpus in context.cpus.items()}
        assert seen[0]
        assert seen[1]
        assert not seen[0] & seen[1]

    @needs_two_cpus
    async def test_it_is_seen_from_outside(self, tmp_path: Path) -> None:
        """``taskset`` reads the same from a running rank."""
        async with shell_group(
            tmp_path, f"echo ready; {SLEEP}", f"echo ready; {SLEEP}", numa_options=EXCLUSIVE
        ) as group:
            told = {
                rank: subprocess.check_output(["taskset", "-cp", str(pid)], text=True).rpartition(":")[2]
                for rank, pid in group.pids().items()
            }

            assert {rank: cpu_set(text) for rank, text in told.items()} == group.cpus

    async def test_the_command_inherits_nothing_more(self, tmp_path: Path) -> None:
        """A bound rank has no descriptor beside the usual three."""
        options: dict[str, Any] = {"numa_options": NumaOptions(AffinityMode.NODE), "log_dir": tmp_path}
        listing = {0: ("-c", "for each in /proc/self/fd/*; do echo ${each##*/}; done")}
        async with start_processes("bound", "sh", listing, redirects=Std.ALL, **options) as context:
            result = await context.wait(timeout=30)

        assert result is not None
        numbers = {int(line) for line in Path(result.stdouts[0]).read_text().split()}
        # The shell opens the directory itself.
        assert len(numbers - {0, 1, 2}) <= 1

    async def test_a_refused_program_is_told_as_without(self, tmp_path: Path) -> None:
        """A script without an interpreter's name is a typed error, and the step leaves nothing."""
        script = tmp_path / "script"
        script.write_text("nothing")
        script.chmod(0o755)

        with pytest.raises(RankStartError, match="ENOEXEC"):
            await start_processes("bound", script, {0: ()}, numa_options=NumaOptions(AffinityMode.NODE))

    async def test_one_handler_is_bound_too(self, tmp_path: Path) -> None:
        """``get_subprocess_handler`` takes the options as well."""
        node = NumaOptions(AffinityMode.NODE)
        handler = await get_subprocess_handler("sh", ("-c", TELLS), {}, tmp_path / "out", None, 0, node)

        assert await handler.wait() == 0
        assert cpu_set((tmp_path / "out").read_text()) <= set(CPUS)

    async def test_cancelled_at_any_step(self) -> None:
        """A start that is cancelled while ranks are being bound leaves none."""
        before = set(descendants("self"))
        for steps in range(0, 100, 4):
            starting = asyncio.ensure_future(
                start_processes("bound", "sh", shells(SLEEP, SLEEP), numa_options=NumaOptions(AffinityMode.NODE))
            )
            for _ in range(steps):
                await asyncio.sleep(0)
            starting.cancel()
            try:
                context = await starting
            except asyncio.CancelledError:
                assert not [pid for pid in set(descendants("self")) - before if is_alive(pid)]
            else:
                await context.close(timeout=0)


class TestFunctions:
    """Ranks that call a function."""

    @needs_two_cpus
    @pytest.mark.parametrize("method", METHODS)
    async def test_each_is_bound_with_all_its_threads(self, method: str) -> None:
        """Two exclusive ranks share no CPU, and neither do their threads."""
        args: dict[int, tuple[()]] = {0: (), 1: ()}
        async with start_processes("bound", where, args, start_method=method, numa_options=EXCLUSIVE) as context:
            result = await context.wait(timeout=30)

        assert result is not None
        assert result.failures == {}
        for rank, (_, of_function, of_thread) in result.return_values.items():
            assert of_function == of_thread == sorted(context.cpus[rank])
        assert not context.cpus[0] & context.cpus[1]

    @needs_two_cpus
    @pytest.mark.parametrize("method", ["spawn", "forkserver"])
    async def test_it_comes_before_the_functions_module(self, method: str) -> None:
        """A library that counts CPUs when it is imported counts those of the rank."""
        args: dict[int, tuple[()]] = {0: (), 1: ()}
        async with start_processes("bound", where, args, start_method=method, numa_options=EXCLUSIVE) as context:
            result = await context.wait(timeout=30)

        assert result is not None
        assert {rank: set(value[0]) for rank, value in result.return_values.items()} == context.cpus

    @pytest.mark.parametrize("method", METHODS)
    async def test_refused_by_the_system(self, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
        """A process that cannot be bound is ended before its function is called, and the error is typed."""
        before = set(descendants("self"))
        monkeypatch.setattr(os, "sched_setaffinity", refuse)

        with pytest.raises(NumaBindingError, match=r"rank 0 .*refuses CPUs .*Operation not permitted.*sandbox"):
            await start_processes(
                "bound", where, {0: (), 1: ()}, start_method=method, numa_options=NumaOptions(AffinityMode.NODE)
            )

        assert not [pid for pid in set(descendants("self")) - before if is_alive(pid)]


class TestSupervisor:
    """The program that starts bound ranks."""

    @needs_two_cpus
    async def test_its_own_cpus_are_untouched(self) -> None:
        """Neither it, nor a thread that it starts meanwhile, is bound."""
        seen: list[set[int]] = []
        async with start_processes("bound", "sh", shells(SLEEP, SLEEP), numa_options=EXCLUSIVE):
            thread = threading.Thread(target=lambda: seen.append(os.sched_getaffinity(0)))
            thread.start()
            thread.join()

        assert seen == [set(CPUS)]
        assert os.sched_getaffinity(0) == set(CPUS)

    @pytest.mark.parametrize("loop", ["asyncio", "uvloop"])
    def test_one_cpu_is_all_there_is(self, loop: str) -> None:
        """With one CPU allowed every rank is bound to that one, and two exclusive ones are refused."""
        printed = run_driver(
            """
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})

async def main():
    for mode in AffinityMode:
        options = NumaOptions(mode)
        try:
            async with start_processes("bound", "true", {0: (), 1: ()}, numa_options=options) as context:
                await context.wait()
        except NumaBindingError as error:
            print(mode, "refused", "cannot share 1 allowed core" in str(error))
        else:
            print(mode, sorted({len(cpus) for cpus in context.cpus.values()}), len(context.cpus))

run(main)
""",
            loop,
        )

        assert printed.splitlines() == ["node [1] 2", "socket [1] 2", "exclusive refused True", "core-complex [1] 2"]

    async def test_fall_back_when_nothing_can_be_chosen(self, caplog: pytest.LogCaptureFixture) -> None:
        """More exclusive ranks than cores run unbound, with a warning for each."""
        options = NumaOptions(AffinityMode.EXCLUSIVE, should_fall_back_if_binding_fails=True)
        ranks = range(len(CPUS) + 1)
        with caplog.at_level(logging.WARNING, "aioelastic"):
            async with start_processes("bound", "true", dict.fromkeys(ranks, ()), numa_options=options) as context:
                result = await context.wait(timeout=30)

        assert result is not None
        assert not result.is_failed()
        assert context.cpus == {}
        assert [record.getMessage().endswith("it runs unbound") for record in caplog.records] == [True for _ in ranks]

    async def test_fall_back_when_the_system_refuses(
        self, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Where ranks cannot be bound they run all the same, with a warning for each."""
        monkeypatch.setattr(os, "sched_setaffinity", refuse)
        options = NumaOptions(AffinityMode.NODE, should_fall_back_if_binding_fails=True)
        with caplog.at_level(logging.WARNING, "aioelastic"):
            async with start_processes("bound", "true", {0: (), 1: ()}, numa_options=options) as context:
                result = await context.wait(timeout=30)

        assert result is not None
        assert not result.is_failed()
        assert context.cpus == {}
        assert sum("refuses CPUs" in record.getMessage() for record in caplog.records) == 2

    async def test_what_was_decided_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        """The log says what was asked, found and applied."""
        with caplog.at_level(logging.INFO, "aioelastic"):
            async with start_processes(
                "bound", "true", {0: ()}, numa_options=NumaOptions(AffinityMode.SOCKET)
            ) as context:
                await context.wait(timeout=30)

        assert "asked: NUMA mode socket for 1 rank" in caplog.text
        assert "found: " in caplog.text
        assert "applied: CPUs " in caplog.text

    async def test_bad_options_are_told_at_once(self) -> None:
        """What is no `NumaOptions` is refused before anything starts."""
        with pytest.raises(SpecificationTypeError, match="numa_options must be a NumaOptions or None, not str"):
            start_processes("bound", "true", {0: ()}, numa_options="node")  # type: ignore[arg-type]


def refuse(pid: int, cpus: set[int]) -> None:
    """Stand for a kernel, or a sandbox, that does not let processes be bound."""
    del pid, cpus
    raise PermissionError(1, "Operation not permitted")
