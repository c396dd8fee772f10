"""One command rank by its handler: `get_subprocess_handler`, and what it gives."""

import asyncio
import errno
import os
import resource
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from aioelastic import RankStartError, SpecificationError, SpecificationTypeError, SubprocessHandler
from aioelastic import get_subprocess_handler as get
from aioelastic._processes import signal_state
from aioelastic._processes.subprocess_handler import start_command
from tests.helpers.groups import until_status
from tests.helpers.leaks import descendants
from tests.helpers.programs import PYTHON, SLEEP
from tests.helpers.waiting import is_alive, until, until_written

APART = (
    f'{PYTHON} -S -c \'import os; os.setpgid(0, 0); print(os.getpid(), end=",", flush=True); '
    'os.execvp("sleep", ["sleep", "60"])\''
)
"""A shell's command that sleeps in a process group of its own, and says its pid and a comma."""

Shell = Callable[..., Awaitable[SubprocessHandler]]
"""Starts a shell rank: script -> handler."""


@pytest.fixture(name="out")
def _out(tmp_path: Path) -> Path:
    """Give a file for standard output."""
    return tmp_path / "stdout.log"


@pytest.fixture(name="shell")
def _shell(out: Path) -> Shell:
    """Give a way to start a shell rank whose stdout is in ``out``."""

    async def start(script: str, env: dict[str, Any] | None = None) -> SubprocessHandler:
        return await get("sh", ("-c", script), env or {}, out, None, 0)

    return start


async def _child_named_in(out: Path) -> int:
    """Wait for a rank to have written the pid of its child and a comma."""
    await until_written(out, ",")
    return int(out.read_text().partition(",")[0])


class TestAttributes:
    """What a handler says."""

    async def test_ranks_pid_and_process(self) -> None:
        """It has the local rank given, asyncio's process, and its pid."""
        handler = await get("true", (), {}, None, None, 5)

        assert await handler.wait() == 0
        assert (handler.local_rank_id, handler.pid) == (5, handler.proc.pid)
        assert isinstance(handler.proc, asyncio.subprocess.Process)

    @pytest.mark.parametrize(
        ("env", "rank"), [({"RANK": "17"}, 17), ({"RANK": 4}, 4), ({}, None), ({"RANK": "x"}, None)]
    )
    async def test_global_rank(self, env: dict[str, Any], rank: int | None, monkeypatch: pytest.MonkeyPatch) -> None:
        """The global rank is the number in ``RANK``, or ``None`` where there is none."""
        monkeypatch.delenv("RANK", raising=False)
        handler = await get("true", (), env, None, None, 0)

        await handler.wait()

        assert handler.global_rank == rank

    async def test_repr_tells_the_state(self, shell: Shell) -> None:
        """Its text says whether it runs, and as what."""
        handler = await shell(SLEEP)
        assert repr(handler) == f"<SubprocessHandler rank 0, pid {handler.pid}, running>"

        handler.close()
        await handler.wait()

        assert repr(handler) == f"<SubprocessHandler rank 0, pid {handler.pid}, exited>"


class TestWait:
    """Waiting for the exit."""

    @pytest.mark.parametrize(("script", "code"), [("exit 0", 0), ("exit 255", 255), ("kill -SEGV $$", -signal.SIGSEGV)])
    async def test_codes(self, shell: Shell, script: str, code: int) -> None:
        """It gives the exit code, or minus the signal's number, again and again."""
        handler = await shell(script)

        assert await handler.wait() == code
        assert await handler.wait() == code

    async def test_grandchild_that_holds_the_stream(self, shell: Shell, out: Path) -> None:
        """It returns at the exit although a grandchild still has the rank's stdout."""
        handler = await shell("sleep 60 & echo $!,; exit 3")

        code = await asyncio.wait_for(handler.wait(), 20)

        child = await _child_named_in(out)
        assert code == 3
        assert is_alive(child)
        handler.close()
        await until(lambda: not is_alive(child), "the end of the grandchild")

    async def test_many_wait_and_one_gives_up(self, shell: Shell) -> None:
        """Any number of tasks may wait; a cancelled one leaves the process and the others alone."""
        handler = await shell(SLEEP)
        waiting = [asyncio.create_task(handler.wait()) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting[:1])
        assert not handler.has_exited()

        handler.close()

        assert await asyncio.gather(*waiting[1:]) == [-signal.SIGTERM] * 2

    async def test_status_taken_by_somebody_else(self, shell: Shell) -> None:
        """Where another part of the program reaps the rank, waiting ends all the same, and nothing is signalled."""
        handler = await shell(SLEEP)
        os.kill(handler.pid, signal.SIGKILL)
        os.waitpid(handler.pid, 0)

        code = await asyncio.wait_for(handler.wait(), 20)
        handler.close()

        assert code in {-signal.SIGKILL, 255}


class TestClose:
    """Ending a rank."""

    @pytest.mark.parametrize("number", [None, signal.SIGUSR1, signal.SIGKILL])
    async def test_whole_group_gets_the_signal(self, shell: Shell, out: Path, number: signal.Signals | None) -> None:
        """The rank and its children get the signal asked for, SIGTERM without one."""
        handler = await shell("sleep 60 & echo $!,; exec sleep 60")
        child = await _child_named_in(out)

        handler.close(number)

        assert await handler.wait() == -(number or signal.SIGTERM)
        await until(lambda: not is_alive(child), "the end of the child")

    async def test_member_of_the_session_outside_the_group(self, shell: Shell, out: Path) -> None:
        """A job in a process group of its own, within the session, gets the signal too."""
        handler = await shell(f"{APART} & exec sleep 60")
        child = await _child_named_in(out)
        assert (os.getpgid(child), os.getsid(child)) == (child, handler.pid)

        handler.close()

        await handler.wait()
        await until(lambda: not is_alive(child), "the end of the job")

    async def test_stopped_rank(self, shell: Shell) -> None:
        """A rank stopped by ^Z or a debugger hears the signal, too."""
        handler = await shell("kill -STOP $$; sleep 60")
        await until_status(handler.pid, psutil.STATUS_STOPPED)

        handler.close()

        assert await handler.wait() == -signal.SIGTERM

    async def test_after_the_exit(self, shell: Shell) -> None:
        """Closing a rank that is gone, once or often, is fine and does nothing."""
        handler = await shell("exit 4")
        await handler.wait()

        handler.close()
        handler.close(signal.SIGKILL)

        assert await handler.wait() == 4

    async def test_leftovers_after_the_exit(self, shell: Shell, out: Path) -> None:
        """Closing a rank that is gone ends what it has left in its group and session."""
        handler = await shell(f"sleep 60 & printf $!,; {APART} & exit 0")
        await handler.wait()
        await until(lambda: out.read_text().count(",") == 2)
        left = [int(pid) for pid in out.read_text().split(",")[:2]]
        assert all(map(is_alive, left))

        handler.close()

        await until(lambda: not any(map(is_alive, left)), "the end of what was left")

    async def test_reaped_number_is_never_signalled(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """Once the rank is reaped its number is not signalled: it may be anybody's."""
        handler = await shell("exit 0")
        await handler.wait()
        sent: list[object] = []
        for name in ("kill", "killpg"):
            monkeypatch.setattr(os, name, lambda *call: sent.append(call))
        monkeypatch.setattr(signal, "pidfd_send_signal", lambda *call: sent.append(call))

        handler.close()
        handler.close(signal.SIGKILL)

        assert sent == []

    async def test_zombie_is_not_signalled_as_a_group(self, shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
        """A rank whose exit the loop has not seen yet counts as gone: the kernel is asked, not the loop."""
        handler = await shell("exit 0")
        while not handler.has_exited():
            os.sched_yield()  # without a turn of the loop
        sent: list[object] = []
        monkeypatch.setattr(os, "killpg", lambda *call: sent.append(call))

        handler.close()

        assert sent == []
        assert await handler.wait() == 0


class TestStart:
    """Getting a handler."""

    async def test_logs_are_added_to(self, shell: Shell, out: Path) -> None:
        """A file that holds something is not emptied."""
        out.write_text("earlier\n")
        handler = await shell("echo later")

        await handler.wait()

        assert out.read_text() == "earlier\nlater\n"

    async def test_no_path_is_the_console(self, capfd: pytest.CaptureFixture[str]) -> None:
        """A path of no text inherits the stream, as it means the console where a specification gives it."""
        handler = await get("sh", ("-c", "echo out; echo err >&2"), {}, "", "", 0)

        await handler.wait()

        assert capfd.readouterr() == ("out\n", "err\n")

    async def test_supervisor_keeps_no_file_open(self, out: Path) -> None:
        """Once the rank runs, the supervisor has its log files closed."""
        handler = await get("sleep", ("60",), {}, out, None, 0)
        paths = [each.path for each in psutil.Process().open_files()]
        handler.close()
        await handler.wait()

        assert out.exists()
        assert str(out) not in paths

    async def test_bare_text_is_one_argument(self, out: Path) -> None:
        """A ``str`` for ``args`` is a single argument."""
        handler = await get("echo", "a b", {}, out, None, 0)

        await handler.wait()

        assert out.read_text() == "a b\n"

    @pytest.mark.parametrize(
        ("changed", "error"),
        [
            ({"entrypoint": "no-such-program"}, FileNotFoundError),
            ({"entrypoint": "/etc/passwd"}, PermissionError),
            ({"stdout": "/no/such/folder/log"}, FileNotFoundError),
            ({"stderr": "/etc/passwd/log"}, NotADirectoryError),
            ({"stdout": "/"}, OSError),
            ({"stdout": 1}, SpecificationTypeError),
            ({"stdout": b"out"}, SpecificationTypeError),
            ({"stderr": "a\0b"}, SpecificationError),
            ({"stderr": "a\ud800"}, SpecificationError),
            ({"args": 5}, SpecificationTypeError),
            ({"args": ("a\0",)}, SpecificationError),
            ({"env": {"A": True}}, SpecificationTypeError),
            ({"env": {"A=": "x"}}, SpecificationError),
            ({"numa_options": object()}, SpecificationError),
        ],
    )
    async def test_what_cannot_be_started(self, changed: dict[str, Any], error: type[Exception]) -> None:
        """Each mistake is a typed error that names the rank, and leaves nothing open or running."""
        good: dict[str, Any] = {"entrypoint": "true", "args": (), "env": {}, "stdout": None, "stderr": None}

        with pytest.raises(error) as caught:
            await get(**{**good, "local_rank_id": 7, **changed})

        if isinstance(caught.value, OSError):
            assert isinstance(caught.value, RankStartError)
            assert caught.value.local_rank == 7
            assert "rank 7" in str(caught.value)

    @pytest.mark.parametrize("blocked", [False, True])
    async def test_script_that_the_kernel_refuses(self, tmp_path: Path, blocked: bool) -> None:
        """A script without ``#!`` is refused on every loop and with every mask, and no shell reads it."""
        script = tmp_path / "script"
        script.write_text(f"touch {tmp_path}/ran\n")
        script.chmod(0o755)

        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1} if blocked else ())
        try:
            with pytest.raises(RankStartError, match="ENOEXEC"):
                await get(script, (), {}, None, None, 0)
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

        assert not (tmp_path / "ran").exists()

    async def test_descriptors_run_out_at_any_place(self) -> None:
        """Of a rank that waits to be bound, and cannot be started for want of descriptors, none stays open."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        codes: list[int | None] = []
        for left in range(16):
            lowest = os.dup(0)
            os.close(lowest)
            resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + left, limits[1]))
            try:
                command = start_command(("true",), os.environ, local_rank=0, by_step=True, bind=lambda _: None)
                codes.append(await (await command).wait())
            except RankStartError as error:
                codes.append(error.errno)
            finally:
                resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        assert codes[:4] == [errno.EMFILE] * 4
        assert set(codes) == {errno.EMFILE, 0}

    async def test_what_never_becomes_the_command(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A start that is stuck before the command runs is given up after a while, and the process killed."""
        monkeypatch.setattr(signal_state, "EXEC_TIMEOUT", 0.05)
        stopped: list[int] = []

        def stop(pid: int) -> None:
            os.kill(pid, signal.SIGSTOP)
            stopped.append(pid)

        with pytest.raises(RankStartError, match="did not begin within") as caught:
            await start_command(("true",), os.environ, local_rank=0, by_step=True, bind=stop)

        assert caught.value.errno == errno.ETIMEDOUT
        assert not is_alive(stopped[0])

    @pytest.mark.parametrize("blocked", [False, True])
    @pytest.mark.parametrize("times", [1, 2])
    async def test_cancelled_at_any_step(self, tmp_path: Path, blocked: bool, times: int) -> None:
        """Cancelled after any number of steps, once or twice, the start leaves no process and no open file."""
        before = set(descendants("self"))
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1} if blocked else ())
        try:
            for steps in range(0, 120, 1 if times == 1 and not blocked else 4):
                task = asyncio.create_task(get("sh", ("-c", SLEEP), {}, tmp_path / "out", tmp_path / "err", 0))
                for _ in range(times):
                    for _ in range(steps):
                        await asyncio.sleep(0)
                    task.cancel()
                try:
                    handler = await task
                except asyncio.CancelledError:
                    assert not [pid for pid in set(descendants("self")) - before if is_alive(pid)]
                else:
                    handler.close(signal.SIGKILL)
                    await handler.wait()
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

    def test_program_ends_at_any_step(self, tmp_path: Path) -> None:
        """A main coroutine that ends while a thread opens the files leaves no process, and no file open."""

        async def main(steps: int) -> None:
            start = get("sh", ("-c", SLEEP), {}, tmp_path / "out", tmp_path / "err", 0)
            starting = asyncio.create_task(start)
            for _ in range(steps):
                await asyncio.sleep(0)
            assert not starting.cancelled()

        for steps in range(24):
            asyncio.run(main(steps % 8))
