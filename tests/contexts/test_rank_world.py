"""The world a rank is born into, and that of the supervisor, which nothing of it changes."""

import asyncio
import json
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvloop

from aioelastic import PContext, Std, start_processes
from tests.helpers.drivers import LOOPS, driver_command, driver_environment, run_driver

STATUS = "/proc/self/status"
"""What the kernel says of whoever reads it; read by ``cat``, which changes no signal, it is what a rank starts with."""


async def _output(entrypoint: str, *args: str, logs: Path, env: dict[str, Any] | None = None, **options: Any) -> str:
    """Run one rank to its good end and give its stdout."""
    async with start_processes(
        "job", entrypoint, {0: args}, {0: env or {}}, log_dir=logs, redirects=Std.OUT, **options
    ) as context:
        result = await context.wait()
    assert result is not None
    assert not result.is_failed(), result
    return Path(result.stdouts[0]).read_text()


def _signals(status: str, field: str) -> set[int]:
    """Read a set of signals from the text of ``/proc/self/status``."""
    [mask] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(f"{field}:")]
    # 32 and 33 are the C library's own: its posix_spawn, which Python 3.13 uses, has them ignored in what it starts.
    return {number for number in range(1, 65) if mask >> (number - 1) & 1} - {32, 33}


def _variables(text: str) -> dict[str, str]:
    return dict(entry.partition("=")[::2] for entry in text.split("\0") if entry)


@contextmanager
def _odd_signals() -> Iterator[None]:
    """Have a supervisor that blocks two signals, ignores one by its own decision, and handles another."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    ignored = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    handled = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGALRM, handled)
        signal.signal(signal.SIGUSR2, ignored)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class TestSession:
    """A rank's place among the processes."""

    async def test_every_rank_leads_a_session_and_a_group(self, tmp_path: Path) -> None:
        """Each rank is the leader of a session and a process group of its own, and a child of the supervisor."""
        async with start_processes(
            "job", "cat", dict.fromkeys(range(3), ("/proc/self/stat",)), log_dir=tmp_path, redirects=Std.OUT
        ) as context:
            await context.wait()

        for rank, pid in context.pids().items():
            _, parent, group, session = Path(context.stdouts[rank]).read_text().rpartition(")")[2].split()[:4]
            assert (int(parent), int(group), int(session)) == (os.getpid(), pid, pid)


class TestDescriptors:
    """What a rank has open."""

    async def test_stdin_is_at_its_end(self, tmp_path: Path) -> None:
        """Standard input is /dev/null."""
        assert await _output("readlink", "/proc/self/fd/0", logs=tmp_path) == "/dev/null\n"

    async def test_nothing_else_is_open(self, tmp_path: Path) -> None:
        """A rank has its three streams and nothing of the supervisor's files, pipes and logs."""
        reading, writing = os.pipe()
        try:
            own = await _output("ls", "-l", "/proc/self/fd", logs=tmp_path, tee=Std.ERR)
        finally:
            os.close(reading)
            os.close(writing)

        opened = [line.split()[8:] for line in own.splitlines() if "pipe:" in line or str(tmp_path) in line]
        assert [number for number, *_ in opened] == ["1", "2"], own

    @pytest.mark.parametrize("loop", LOOPS)
    @pytest.mark.parametrize("teed", [False, True])
    @pytest.mark.half
    def test_streams_are_blocking(self, loop: str, teed: bool) -> None:
        """All of 200 kB arrives although the supervisor's own stdout and stderr are non-blocking, and they stay so."""
        program = """
os.set_blocking(1, False)
os.set_blocking(2, False)
script = "cat /proc/self/fdinfo/0 /proc/self/fdinfo/1 /proc/self/fdinfo/2; head -c 200000 /dev/zero | tr '\\\\0' x"
async def main():
    options = {"tee": Std.ALL, "log_line_prefixes": {0: ""}} if sys.argv[2] == "True" else {}
    async with start_processes("job", "sh", {0: ("-c", script)}, **options) as context:
        result = await context.wait()
    assert result.failures == {}, result
    assert not os.get_blocking(1) and not os.get_blocking(2)
run(main)
"""
        output = run_driver(program, loop, teed)

        flags = [int(line.split()[1], 8) for line in output.splitlines() if line.startswith("flags:")]
        assert len(flags) == 3
        assert not any(each & os.O_NONBLOCK for each in flags)
        assert output.count("x") == 200_000


class TestSignals:
    """Masks and dispositions."""

    async def test_none_blocked_and_all_default(self, tmp_path: Path) -> None:
        """A rank starts with no signal blocked and none ignored, SIGPIPE included, which Python ignores."""
        status = await _output("cat", STATUS, logs=tmp_path)

        assert (_signals(status, "SigBlk"), _signals(status, "SigIgn"), _signals(status, "SigCgt")) == (set(),) * 3

    async def test_whatever_the_supervisor_has_made_of_its_own(self, tmp_path: Path) -> None:
        """The same where the supervisor's thread has blocked signals, and ignores others by its own decision."""
        with _odd_signals():
            status = await _output("cat", STATUS, logs=tmp_path)

        assert (_signals(status, "SigBlk"), _signals(status, "SigIgn")) == (set(), set())

    @pytest.mark.parametrize("loop", LOOPS)
    @pytest.mark.parametrize("more", ["", "signal.signal(signal.SIGUSR2, signal.SIG_IGN)"])
    @pytest.mark.half
    def test_inherited_ignore_stays(self, loop: str, more: str) -> None:
        """Signals that the supervisor was started with as ignored (nohup) are ignored in its ranks, and only these."""
        program = f"""
{more}
async def main():
    async with start_processes("job", "cat", {{0: ("{STATUS}",)}}) as context:
        await context.wait()
run(main)
"""
        status = run_driver(program, loop, shell="trap '' HUP QUIT")

        assert _signals(status, "SigIgn") == {signal.SIGHUP, signal.SIGQUIT}
        assert _signals(status, "SigBlk") == set()

    @pytest.mark.parametrize("loop", LOOPS)
    def test_ignored_hangup_does_not_end_a_rank(self, loop: str) -> None:
        """Under nohup a SIGHUP to a rank's group leaves it running, and its SIGTERM still ends it."""
        program = """
async def main():
    async with start_processes("job", "sh", {0: ("-c", "kill -HUP 0; exec sleep 60")}) as context:
        await asyncio.sleep(0)
        os.killpg(context.pids()[0], signal.SIGHUP)
        assert await context.wait(0.3) is None
        await context.close(timeout=20)
        print((await context.wait()).exits[0].signal)
run(main)
"""
        assert run_driver(program, loop, shell="trap '' HUP") == "SIGTERM\n"

    async def test_concurrent_starts_through_the_exec_step(self) -> None:
        """With blocked signals, groups started at the same time do not wait for one another's ranks to end."""
        with _odd_signals():
            contexts: list[PContext] = await asyncio.wait_for(
                asyncio.gather(*(start_processes("job", "sleep", {0: (60,), 1: (60,)}) for _ in range(4))), 20
            )
        for context in contexts:
            await context.close(signal.SIGKILL)

        assert len(contexts) == 4


class TestVariables:
    """The environment."""

    @pytest.mark.parametrize("odd", [False, True])
    async def test_inherited_with_changes_on_top(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, odd: bool
    ) -> None:
        """A rank has exactly the supervisor's variables, with its own put over, and those with ``None`` taken away."""
        for name in ("LC_ALL", "LC_CTYPE", "LANG", "TORCHELASTIC_ERROR_FILE"):
            monkeypatch.delenv(name, raising=False)
        monkeypatch.setenv("KEPT", "a=b\nc")
        monkeypatch.setenv("REMOVED", "x")
        monkeypatch.setenv("REPLACED", "x")
        env = {"REMOVED": None, "REPLACED": "", "RANK": 3, "RATE": 0.5, "PLACE": tmp_path, "ABSENT": None}

        if odd:
            with _odd_signals():
                text = await _output("env", "-0", logs=tmp_path, env=env)
        else:
            text = await _output("env", "-0", logs=tmp_path, env=env)

        got = _variables(text)
        wanted = {**os.environ, "REPLACED": "", "RANK": "3", "RATE": "0.5", "PLACE": str(tmp_path)}
        del wanted["REMOVED"]
        assert got.pop("TORCHELASTIC_ERROR_FILE").startswith(str(tmp_path))
        assert got.pop("AIOELASTIC_RANK_TOKEN").endswith(".0")
        assert got == wanted

    async def test_each_rank_has_its_own(self, tmp_path: Path) -> None:
        """Ranks see their own variables and not one another's."""
        args = dict.fromkeys(range(2), ("-c", 'echo "$A-$B"'))
        async with start_processes(
            "job", "sh", args, {0: {"A": 1}, 1: {"B": 2}}, log_dir=tmp_path, redirects=Std.OUT
        ) as context:
            await context.wait()

        assert [Path(path).read_text() for path in context.stdouts.values()] == ["1-\n", "-2\n"]

    async def test_error_file_reaches_the_rank(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """``TORCHELASTIC_ERROR_FILE`` is the path in ``error_files``, whatever the supervisor's and the rank's are."""
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "/supervisors/own")
        args = dict.fromkeys(range(2), ("TORCHELASTIC_ERROR_FILE",))
        envs = {0: {}, 1: {"TORCHELASTIC_ERROR_FILE": "/users/own"}}
        async with start_processes("job", "printenv", args, envs, log_dir=tmp_path, redirects=Std.OUT) as context:
            await context.wait()

        got = {rank: Path(path).read_text().rstrip("\n") for rank, path in context.stdouts.items()}
        assert got == context.error_files
        assert all(path.endswith(f"/{rank}/error.json") for rank, path in got.items())

    async def test_supervisors_error_file_is_not_inherited(
        self, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Without files of its own, a rank does not write into the supervisor's error file."""
        monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", "/supervisors/own")
        async with start_processes("job", "env", {0: ()}, log_dir=os.devnull) as context:
            await context.wait()

        assert "TORCHELASTIC_ERROR_FILE" not in capfd.readouterr().out
        assert context.error_files == {0: ""}
        assert os.environ["TORCHELASTIC_ERROR_FILE"] == "/supervisors/own"

    async def test_all_ranks_inherit_the_same(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The loop goes on between the starts of ranks; a variable that changes meanwhile is the same for all."""
        ranks = 12
        starting = start_processes(
            "job", "sh", dict.fromkeys(range(ranks), ("-c", "echo $STARTED")), log_dir=tmp_path, redirects=Std.OUT
        )
        seen: set[int] = set()

        async def change() -> None:
            while True:
                seen.add(started := len(starting.context.pids()))
                monkeypatch.setenv("STARTED", str(started))
                await asyncio.sleep(0)

        changing = asyncio.create_task(change())
        async with starting as context:
            await context.wait()
        changing.cancel()

        assert seen & set(range(1, ranks))
        assert {Path(path).read_text() for path in context.stdouts.values()} == {"0\n"}


class TestWorkingDirectory:
    """Where a rank is."""

    async def test_the_supervisors_or_the_one_asked_for(self, tmp_path: Path) -> None:
        """A rank is where the supervisor is, or in ``cwd``, from where a relative command is found too."""
        place = tmp_path / "place"
        place.mkdir()
        (place / "here").write_text("#!/bin/sh\npwd\n")
        (place / "here").chmod(0o755)

        assert await _output("pwd", logs=tmp_path) == f"{Path.cwd()}\n"
        assert await _output("./here", logs=tmp_path, cwd=place) == f"{place}\n"


class TestSupervisorsWorld:
    """What must be as it was."""

    async def test_nothing_of_it_changes(self, tmp_path: Path) -> None:
        """Variables, arguments, handlers, mask, directory, umask and limits are the same during and after a group."""
        args: dict[int, Any] = {0: ("-c", "exec sleep 60"), 1: ["-c", "exit 0"]}
        envs: dict[int, dict[str, str | None]] = {0: {"A": "1"}, 1: {"B": None}}
        prefixes, tee = {0: "x"}, {1: Std.ALL}
        given = json.dumps([args, envs, prefixes, tee])
        with _odd_signals():
            before = _world()
            context = await start_processes("job", "sh", args, envs, None, prefixes, log_dir=tmp_path, tee=tee)
            during = _world()
            await context.close()

            assert before == during == _world()
        assert json.dumps([args, envs, prefixes, tee]) == given


def _world() -> tuple[object, ...]:
    umask = os.umask(0o22)
    os.umask(umask)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    blocking = [os.get_blocking(number) for number in (0, 1, 2)]
    return dict(os.environ), handlers, signal.pthread_sigmask(signal.SIG_BLOCK, ()), Path.cwd(), umask, blocking


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_thread_with_a_loop_of_its_own(make_loop: Callable[[], asyncio.AbstractEventLoop], tmp_path: Path) -> None:
    """Off the main thread a group starts, is waited for and ends as in it, also with that thread's signals blocked."""
    outcomes: list[object] = []

    async def main() -> None:
        async with start_processes(
            "job", "sh", {0: ("-c", "cat /proc/self/status; exit 3"), 1: ("-c", "exec sleep 60")}, redirects=Std.OUT,
            log_dir=tmp_path,
        ) as context:  # fmt: skip
            result = await context.wait()
        assert result is not None
        status = Path(result.stdouts[0]).read_text()
        outcomes.extend([result.exits[0].exitcode, result.exits[1].signal, _signals(status, "SigBlk")])

    def work() -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
        with asyncio.Runner(loop_factory=make_loop) as runner:
            runner.run(main())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join(30)

    assert outcomes == [3, "SIGTERM", set()]


def test_supervisor_without_standard_streams(tmp_path: Path) -> None:
    """Where the supervisor's 0, 1 and 2 are closed (a daemon), a rank has three all the same."""
    program = """
for number in (0, 1, 2):
    os.close(number)
async def main():
    script = "echo lost; echo lost >&2; open=$(for each in 0 1 2; do readlink /proc/$$/fd/$each; done); echo $open > "
    script += sys.argv[2]
    async with start_processes("job", "sh", {0: ("-c", script)}) as context:
        result = await context.wait()
    os._exit(len(result.failures))
run(main)
"""
    command = driver_command(program, "asyncio", tmp_path / "open")
    done = subprocess.run(command, env=driver_environment(), timeout=30, check=False)

    assert done.returncode == 0
    assert (tmp_path / "open").read_text() == "/dev/null /dev/null /dev/null\n"
