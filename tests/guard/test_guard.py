"""The guard's own life: one process per program, there as long as a group is, and replaced when somebody ends it."""

import asyncio
import contextlib
import errno
import os
import signal
from pathlib import Path

import psutil
import pytest

from aioelastic import RankStartError, start_processes
from aioelastic._guard import guard as guard_module
from aioelastic._guard.ledger import Terms, note_ended, note_started, note_starting, open_ledger, read_ledger
from aioelastic._launch import Starting
from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.programs import SLEEP, shells
from tests.helpers.survivors import FAMILY, command_of, doomed
from tests.helpers.waiting import is_alive, until


def guards() -> list[int]:
    """Give the pids of this program's guards."""
    return [each.pid for each in psutil.Process().children() if "program.main" in command_of(each.pid)]


def sleepers(ranks: int = 1) -> Starting:
    """Give a group that is on its way."""
    return start_processes("job", "sh", shells(*[SLEEP] * ranks))


async def test_groups_share_one_guard_until_the_last_is_over() -> None:
    """It comes with the first group and is gone, reaped, when the last one is closed."""
    async with sleepers():
        first = guards()
        async with sleepers(), sleepers():
            assert guards() == first
        assert guards() == first
        assert len(first) == 1
    assert guards() == []
    assert not psutil.pid_exists(first[0])


async def test_a_group_that_ends_by_itself_leaves_no_guard() -> None:
    """It needs no close for that."""
    context = await start_processes("job", "true", {0: ()})
    await context.wait()
    await until(lambda: not guards())
    await context.close()


async def test_a_group_that_goes_without_gets_none() -> None:
    """``orphan_guard=False`` starts no process but the ranks."""
    async with start_processes("job", "sh", shells(SLEEP), orphan_guard=False):
        assert guards() == []


async def test_a_start_that_fails_leaves_no_guard() -> None:
    """Neither does one that is cancelled."""
    with pytest.raises(FileNotFoundError):
        await start_processes("job", "./nobody", {0: ()}, cwd="/")
    starting = asyncio.create_task(sleepers(8))
    await until(guards)
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert guards() == []


@pytest.mark.parametrize("loop", LOOPS)
def test_threads_with_loops_of_their_own_share_it(loop: str) -> None:
    """There is one guard for a program, whichever loops its groups live on, and none is left in the end."""
    program = """
import threading, psutil
up = threading.Barrier(3)
down = threading.Barrier(3)
def work():
    async def main():
        async with start_processes("job", "sleep", {0: (60,)}):
            await asyncio.to_thread(up.wait)
            await asyncio.to_thread(down.wait)
    run(main)
threads = [threading.Thread(target=work) for _ in range(2)]
for thread in threads: thread.start()
up.wait()
print(sum("program.main" in " ".join(each.cmdline()) for each in psutil.Process().children()))
down.wait()
for thread in threads: thread.join()
print(len(psutil.Process().children()))
"""
    assert run_driver(program, loop) == "1\n0\n"


async def test_one_that_was_killed_is_replaced_with_the_next_group(caplog: pytest.LogCaptureFixture) -> None:
    """The next start notices, says so, and reaps it."""
    async with sleepers():
        (first,) = guards()
        os.kill(first, signal.SIGKILL)
        await until(lambda: not is_alive(first))
        async with sleepers():
            (second,) = guards()
            assert not psutil.pid_exists(first)
        assert guards() == [second]
    assert [record.message for record in caplog.records] == [
        f"the orphan guard (pid {first}) does not work any more: starting another"
    ]


async def test_its_death_disturbs_no_group_that_runs(caplog: pytest.LogCaptureFixture) -> None:
    """Neither ranks that are started meanwhile nor the end of the group."""
    starting = asyncio.create_task(sleepers(40))
    await until(guards)
    os.kill(guards()[0], signal.SIGKILL)
    context = await starting
    assert len(context.pids()) == 40
    await context.close()
    assert not caplog.records


async def test_one_that_hangs_is_replaced(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stopped guard that cannot take another word is ended, and the start does not wait for it."""
    async with sleepers():
        (first,) = guards()
        os.kill(first, signal.SIGSTOP)
        helper = guard_module._guard._helper
        assert helper is not None
        with contextlib.suppress(BlockingIOError):
            while True:
                helper.tell(b"D", "0" * 16)
        async with sleepers():
            assert first not in guards()
            assert len(guards()) == 1
    assert "does not work any more" in caplog.text


def test_running_groups_are_handed_to_the_new_one(tmp_path: Path) -> None:
    """A group that was started under a guard that has died is ended by its successor, its last lines included."""
    program = """
import psutil
async def main():
    args = {0: ("-c", sys.argv[2])}
    first = await start_processes("first", "sh", args, log_dir=sys.argv[3], tee=Std.OUT)
    while "ready" not in Path(first.stdouts[0]).read_text():
        await asyncio.sleep(0.01)
    [guard] = [each for each in psutil.Process().children() if "program.main" in " ".join(each.cmdline())]
    guard.kill()
    while guard.is_running() and guard.status() != "zombie":
        await asyncio.sleep(0.01)
    logging.getLogger("aioelastic").setLevel("ERROR")
    await start_processes("second", "sleep", {0: (60,)})
    await asyncio.sleep(0)
    print(first.stdouts[0], flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
run(main)
"""
    # Not `sleep 99` alone: a child that is signalled before it executes has the shell's handler, and loses the signal.
    script = FAMILY.replace("trap '' TERM\n", "trap 'echo bye' TERM\n").replace("sleep 99;", "sleep 99 & wait;")
    with doomed(program, script, tmp_path) as supervisor:
        line = supervisor.line()
        while not line.startswith("/"):
            line = supervisor.line()
        supervisor.process.wait(20)
        assert supervisor.until_gone() < 4
    assert Path(line).read_text() == "ready\nbye\n"


def test_a_forked_copy_of_the_program_has_a_guard_of_its_own() -> None:
    """It may start groups, and ends neither its original's guard nor keeps its socket."""
    program = """
import psutil, warnings
def guards():
    return [each.pid for each in psutil.Process().children() if "program.main" in " ".join(each.cmdline())]
async def main():
    async with start_processes("job", "sleep", {0: (60,)}):
        [ours] = guards()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # newer Pythons warn of forks in a program with threads
            copy = os.fork()
        if not copy:
            asyncio.events._set_running_loop(None)
            async def again():
                async with start_processes("job", "sleep", {0: (60,)}):
                    print(len(guards()), guards() != [ours], flush=True)
                print(len(guards()), flush=True)
            run(again)
            os._exit(0)
        await asyncio.to_thread(os.waitpid, copy, 0)
        print(guards() == [ours])
run(main)
"""
    assert run_driver(program, "asyncio") == "1 True\n0\nTrue\n"


async def test_without_an_interpreter_there_is_a_word_and_no_guard(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A frozen program has no interpreter to run the guard in; its groups run all the same."""
    monkeypatch.setattr("sys.frozen", True, raising=False)
    async with sleepers():
        assert guards() == []
    assert "no orphan guard" in caplog.text


async def test_where_it_cannot_start_the_group_does_not_either(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group is not left without what was promised: the error names the command and the way out."""
    monkeypatch.setattr(guard_module, "_COMMAND", ("/nobody/here", "x"))
    with pytest.raises(RankStartError, match="orphan_guard=False") as caught:
        await sleepers()
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.command == ("/nobody/here", "x")


async def test_one_that_dies_at_once_is_not_left_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a guard that has just been started cannot be told of the group, the start fails and nothing stays."""

    def refuse(_helper: object, _what: bytes, _token: str, _descriptors: object = ()) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(guard_module._Helper, "tell", refuse)
    with pytest.raises(RankStartError, match="be guarded"):
        await sleepers()
    assert guards() == []


def test_a_ledger_says_what_was_noted() -> None:
    """Ranks that are being started, those that run and those that have ended, in any order of the news."""
    ledger = open_ledger(Terms(15, 0.5, sweeps=True))
    try:
        for rank in range(4):
            note_starting(ledger, rank)
        note_started(ledger, 0, 1000)
        note_ended(ledger, 2)
        note_started(ledger, 1, 1001)
        note_ended(ledger, 1)
        entries = read_ledger(ledger)
    finally:
        os.close(ledger)
    assert entries.terms == Terms(15, 0.5, sweeps=True)
    assert entries.leaders == {1000: False, 1001: True}
    assert entries.starting == {2, 3}


async def test_its_descriptors_are_nobody_elses(tmp_path: Path) -> None:
    """A rank inherits neither the socket nor the ledger."""
    script = f"ls -l /proc/self/fd > {tmp_path}/fds"
    async with start_processes("job", "sh", shells(script)) as context:
        await context.wait()
    listed = (tmp_path / "fds").read_text()
    assert "socket" not in listed
    assert "ledger" not in listed
