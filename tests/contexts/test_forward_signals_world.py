"""Ranks that are started while signals are forwarded: their world is that of any rank, and ours is put back."""

import asyncio
import os
import signal
from pathlib import Path

import pytest

from aioelastic import (
    ContextStateError,
    DefaultLogsSpecs,
    MultiprocessContext,
    Std,
    SubprocessContext,
    forward_signals,
    start_processes,
)
from tests.helpers import function_worlds as worlds
from tests.helpers.function_groups import FORK_WARNING, METHODS, function_group, ready, run_functions
from tests.helpers.leaks import descendants
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import is_alive

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.half]

each_method = pytest.mark.parametrize("method", METHODS)

PYTHON_IGNORES = {signal.SIGPIPE, signal.SIGXFSZ}
"""What every Python ignores."""

ALL_KINDS = [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2]
"""What is forwarded here."""


def idle() -> SubprocessContext:
    """Make a group that is never started, for signals to be forwarded to."""
    return SubprocessContext("idle", "sh", shells(SLEEP), None, DefaultLogsSpecs(log_dir=os.devnull))


def _mask(status: str, field: str) -> set[int]:
    """Read a set of signals from the text of ``/proc/self/status``."""
    [mask] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(f"{field}:")]
    # 32 and 33 are the C library's own: its posix_spawn has them ignored in what it starts.
    return {number for number in range(1, 65) if mask >> (number - 1) & 1} - {32, 33}


async def test_a_command_has_default_signals(tmp_path: Path) -> None:
    """Nothing is blocked, ignored or caught in a command that is started within the block."""
    async with (
        forward_signals(idle(), *ALL_KINDS),
        start_processes("job", "cat", {0: ("/proc/self/status",)}, log_dir=tmp_path, redirects=Std.OUT) as context,
    ):
        await context.wait()

    status = Path(context.stdouts[0]).read_text()
    assert (_mask(status, "SigBlk"), _mask(status, "SigIgn"), _mask(status, "SigCgt")) == (set(),) * 3


@each_method
async def test_a_function_has_a_new_pythons_signals(method: str) -> None:
    """A function that is started within the block has Python's own handlers, and nothing wakes a loop."""
    async with forward_signals(idle(), *ALL_KINDS):
        result = await run_functions(method, worlds.signals)

    assert not result.is_failed(), result
    found = result.return_values[0]
    assert _mask(found["status"], "SigBlk") == set()
    assert found["odd"] == PYTHON_IGNORES | {signal.SIGINT}
    assert found["interrupt"] is True
    assert found["wakeup"] == -1


async def test_a_forked_function_has_no_descriptor_of_ours(tmp_path: Path) -> None:
    """What the block has opened is not open in a copy of the supervisor."""
    (tmp_path / "go").touch()
    before = set(worlds.open_files_now().values())
    async with forward_signals(idle(), *ALL_KINDS):
        ours = set(worlds.open_files_now().values()) - before
        result = await run_functions("fork", worlds.open_files, (ready(tmp_path, 0), str(tmp_path / "go")))

    assert not result.is_failed(), result
    assert not ours & set(result.return_values[0].values())


@each_method
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
async def test_a_function_dies_of_the_signal_itself(method: str, tmp_path: Path, number: signal.Signals) -> None:
    """Sent to a rank alone, a signal does to it what it does to any program, and the supervisor hears nothing."""
    forwarding = forward_signals(idle(), *ALL_KINDS)
    async with forwarding as forwarded, function_group(method, tmp_path, worlds.sleep_until_told) as context:
        os.kill(context.pids()[0], number)
        result = await context.wait(timeout=20)

    assert result is not None
    # Python's SIGINT is an exception.
    assert result.exits[0].exitcode in {-number, 1}
    assert forwarded.received == ()


@each_method
async def test_signals_during_the_start_of_functions(method: str, tmp_path: Path) -> None:
    """A signal k steps after the start of functions ends them, or their start, to the last process."""
    before = {pid for pid in descendants("self") if is_alive(pid)}
    for steps in range(0, 60, 6):
        logs = DefaultLogsSpecs(tmp_path, tee=Std.ALL, local_ranks_filter=())
        context = MultiprocessContext("job", worlds.pause, {0: (), 1: ()}, None, method, logs, shutdown_timeout=60)
        async with forward_signals(context) as forwarded:
            starting = asyncio.create_task(context.start())
            for _ in range(steps):
                await asyncio.sleep(0)
            os.kill(os.getpid(), signal.SIGTERM)
            await asyncio.wait([starting])
            error = starting.exception()
            assert error is None or isinstance(error, ContextStateError)

        assert forwarded.received == (signal.SIGTERM,)
        assert {pid for pid in descendants("self") if is_alive(pid)} - before == set()
