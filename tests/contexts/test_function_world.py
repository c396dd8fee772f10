"""The world a function rank is born into, and that of the supervisor, which nothing of it changes."""

import asyncio
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from aioelastic import RankStartError, Std, start_processes
from tests.helpers import function_worlds as worlds
from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.function_groups import (
    FORK_WARNING,
    METHODS,
    all_ready,
    function_group,
    ready,
    run_functions,
    values_of,
)

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.half]

each_method = pytest.mark.parametrize("method", METHODS)
each_loop = pytest.mark.parametrize("loop", LOOPS)

PYTHON_IGNORES = {signal.SIGPIPE, signal.SIGXFSZ}
"""What every Python ignores."""

FAULTS = {signal.SIGSEGV, signal.SIGFPE, signal.SIGABRT, signal.SIGBUS, signal.SIGILL}
"""What `record` has `faulthandler` tell of."""

WORLDS = "from tests.helpers import function_worlds as worlds\n"
"""Begins a driver that runs functions of that module."""


def _mask(status: str, field: str) -> set[int]:
    """Read a set of signals from the text of ``/proc/self/status``."""
    [mask] = [int(line.split()[1], 16) for line in status.splitlines() if line.startswith(f"{field}:")]
    # 32 and 33 are the C library's own: its posix_spawn has them ignored in what it starts.
    return {number for number in range(1, 65) if mask >> (number - 1) & 1} - {32, 33}


@contextmanager
def _odd_signals() -> Iterator[None]:
    """Have a supervisor that blocks two signals, ignores one by its own decision, and handles others."""
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGUSR1})
    before = {number: signal.getsignal(number) for number in (signal.SIGUSR2, signal.SIGALRM, signal.SIGINT)}
    signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.signal(signal.SIGINT, lambda *_: None)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, int)
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGTERM)
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@each_method
async def test_every_rank_leads_a_session_and_a_group(method: str) -> None:
    """Each rank is the leader of a session and a process group of its own, under the pid that the context tells."""
    async with start_processes("job", worlds.place, {0: (), 1: ()}, start_method=method) as context:
        result = await context.wait()

    assert result is not None
    for rank, pid in context.pids().items():
        place = result.return_values[rank]
        assert (place["pid"], place["group"], place["session"]) == (pid, pid, pid)
        assert method == "forkserver" or place["parent"] == os.getpid()


@each_method
async def test_stdin_is_at_its_end(method: str) -> None:
    """Standard input is /dev/null, for Python and by descriptor."""
    assert await values_of(method, worlds.read_stdin) == [(b"", "", "/dev/null")]


@pytest.mark.one_of("teed")
@pytest.mark.one_method
@each_loop
@each_method
@pytest.mark.parametrize("teed", [False, True])
def test_streams_are_blocking(loop: str, method: str, teed: bool) -> None:
    """All of 200 kB arrives although the supervisor's own stdout and stderr are non-blocking, and they stay so."""
    program = f"""{WORLDS}
os.set_blocking(1, False)
os.set_blocking(2, False)
async def main():
    options = {{"tee": Std.ALL, "log_line_prefixes": {{0: ""}}}} if {teed} else {{}}
    options["start_method"] = {method!r}
    async with start_processes("job", worlds.print_flags, {{0: (200_000,)}}, **options) as context:
        result = await context.wait()
    assert result.return_values == {{0: [True, True, True]}}, result
    assert not os.get_blocking(1) and not os.get_blocking(2)
run(main)
"""
    assert run_driver(program, loop).count("x") == 200_000


@each_method
@pytest.mark.parametrize("odd", [False, True])
async def test_signals_are_those_of_a_new_python(method: str, odd: bool) -> None:
    """No signal is blocked, all have Python's own defaults, and nothing wakes a loop, whatever the supervisor's are."""
    if odd:
        with _odd_signals():
            [found] = await values_of(method, worlds.signals)
    else:
        [found] = await values_of(method, worlds.signals)

    assert _mask(found["status"], "SigBlk") == set()
    assert _mask(found["status"], "SigIgn") == PYTHON_IGNORES
    assert _mask(found["status"], "SigCgt") - FAULTS == {signal.SIGINT}
    assert found["odd"] == PYTHON_IGNORES | {signal.SIGINT}
    assert found["interrupt"] is True
    assert found["wakeup"] == -1


@pytest.mark.one_of("more")
@pytest.mark.one_method
@each_loop
@each_method
@pytest.mark.parametrize("more", ["", "signal.signal(signal.SIGUSR2, signal.SIG_IGN)"])
def test_inherited_ignore_stays(loop: str, method: str, more: str) -> None:
    """Signals that the supervisor was started with as ignored (nohup) are ignored in its ranks, and only these."""
    program = f"""{WORLDS}
{more}
async def main():
    async with start_processes("job", worlds.signals, {{0: ()}}, start_method={method!r}) as context:
        result = await context.wait()
    print(result.return_values[0]["status"])
run(main)
"""
    status = run_driver(program, loop, shell="trap '' HUP QUIT")

    assert _mask(status, "SigIgn") == PYTHON_IGNORES | {signal.SIGHUP, signal.SIGQUIT}
    assert _mask(status, "SigBlk") == set()


@each_method
async def test_variables_are_inherited_with_changes_on_top(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A rank and its children have exactly the supervisor's variables of now, changed as asked for."""
    for name in ("LC_ALL", "LANG", "TORCHELASTIC_ERROR_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("LC_CTYPE", "C.UTF-8")
    monkeypatch.setenv("KEPT", "a=b\nc")
    monkeypatch.setenv("REMOVED", "x")
    monkeypatch.setenv("REPLACED", "x")
    env = {"REMOVED": None, "REPLACED": "", "RANK": 3, "RATE": 0.5, "PLACE": tmp_path, "ABSENT": None}
    async with start_processes(
        "job", worlds.variables, {0: ()}, {0: env}, start_method=method, log_dir=tmp_path
    ) as context:
        result = await context.wait()

    assert result is not None
    wanted = {**os.environ, "REPLACED": "", "RANK": "3", "RATE": "0.5", "PLACE": str(tmp_path)}
    wanted["TORCHELASTIC_ERROR_FILE"] = context.error_files[0]
    del wanted["REMOVED"]
    # The readline library of pytest's process sets these two behind Python's back, and a fork copies that.
    by_readline = {"LINES", "COLUMNS"} - wanted.keys()
    token = result.return_values[0]["python"]["AIOELASTIC_RANK_TOKEN"]
    wanted["AIOELASTIC_RANK_TOKEN"] = token
    assert result.return_values[0]["python"] == wanted
    assert {
        name: value for name, value in result.return_values[0]["child"].items() if name not in by_readline
    } == wanted


@each_method
async def test_each_rank_has_its_own_variables(method: str) -> None:
    """Ranks see their own variables and not one another's."""
    async with start_processes(
        "job", worlds.variables, {0: (), 1: ()}, {0: {"OF_0": "a"}, 1: {"OF_1": 1}}, start_method=method
    ) as context:
        result = await context.wait()

    assert result is not None
    found = [{name for name in result.return_values[rank]["child"] if name.startswith("OF_")} for rank in (0, 1)]
    assert found == [{"OF_0"}, {"OF_1"}]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
async def test_variables_are_there_before_the_functions_module(method: str) -> None:
    """A module that reads a variable when it is imported reads the rank's own."""
    async with start_processes(
        "job", worlds.loaded_with, {0: (), 1: ()}, {0: {"FUNCTION_WORLD": "0"}, 1: {"FUNCTION_WORLD": "1"}},
        start_method=method,
    ) as context:  # fmt: skip
        result = await context.wait()

    assert result is not None
    assert result.return_values == {0: "0", 1: "1"}
    assert worlds.LOADED_WITH is None


@each_method
async def test_working_directory(method: str, tmp_path: Path, elsewhere: Path) -> None:
    """A rank is where the supervisor is now, or in the directory asked for."""
    place = tmp_path / "place"
    place.mkdir()

    assert await values_of(method, worlds.directory) == [str(elsewhere)]
    assert await values_of(method, worlds.directory, cwd=place) == [str(place)]
    assert Path.cwd() == elsewhere


@each_method
async def test_missing_working_directory(method: str, tmp_path: Path) -> None:
    """A directory that does not exist is the error of the start."""
    with pytest.raises(FileNotFoundError) as caught:
        await run_functions(method, worlds.directory, cwd=tmp_path / "missing")

    assert isinstance(caught.value, RankStartError)
    assert "worlds.directory()" in str(caught.value)


@each_method
async def test_it_is_a_process_of_multiprocessing(method: str) -> None:
    """`multiprocessing` knows the rank's name, that it is no daemon, and its parent, the supervisor."""
    [first, second] = await values_of(method, worlds.process_of_multiprocessing, (), ())

    assert first == {"parent": os.getpid(), "parent alive": True, "name": "job0", "daemon": False}
    assert second["name"] == "job1"


@each_method
async def test_it_can_have_processes_and_threads(method: str) -> None:
    """A rank starts processes of `multiprocessing` and threads of its own."""
    assert await values_of(method, worlds.call, (worlds.runs_children,), (worlds.runs_threads,)) == [3, [1, 2]]


@each_method
async def test_no_event_loop_is_inherited(method: str) -> None:
    """In a rank no loop runs, the policy holds none that runs, and `asyncio.run` works."""
    expected = {"running": False, "inherited": False, "works": True}
    assert await values_of(method, worlds.loop_state) == [expected]


@pytest.mark.one_of("inner")
@pytest.mark.one_method
@each_method
@pytest.mark.parametrize("inner", METHODS)
async def test_it_can_start_groups(method: str, inner: str, tmp_path: Path) -> None:
    """A rank supervises groups of functions, started in any way, and of commands."""
    assert await values_of(method, worlds.runs_groups, (inner, str(tmp_path))) == [({0: 2, 1: 4}, "hello\n")]


class TestForkedDescriptors:
    """What a forked rank, a copy of the supervisor, has open."""

    async def test_no_other_ranks_pipes(self, tmp_path: Path) -> None:
        """No pipe of another rank or group is open in it: neither an output, nor a value, nor a sentinel."""
        before = set(worlds.open_files_now().values())
        async with (
            start_processes("other", "sleep", {0: (60,)}, log_dir=tmp_path, tee=Std.ALL) as other,
            start_processes(
                "job",
                worlds.open_files,
                {rank: (ready(tmp_path, rank), str(tmp_path / "go")) for rank in range(3)},
                start_method="fork",
                log_dir=tmp_path,
                tee=Std.ALL,
            ) as context,
        ):
            theirs = {str(Path(f"/proc/{other.pids()[0]}/fd/{number}").readlink()) for number in (1, 2)}
            await all_ready(tmp_path, range(3))
            (tmp_path / "go").touch()
            result = await context.wait(timeout=60)
            await other.close(signal.SIGKILL)

        assert result is not None
        result.raise_for_failures()
        pipes = [
            {what for what in opened.values() if what.startswith("pipe:")} - before
            for opened in result.return_values.values()
        ]
        assert not set.union(*pipes) & theirs
        assert [pipes[0] & pipes[1], pipes[0] & pipes[2], pipes[1] & pipes[2]] == [set()] * 3

    async def test_only_its_own_ends(self, tmp_path: Path) -> None:
        """Of each pipe to the supervisor it has one end, and not the one at which the supervisor reads."""
        before = set(worlds.open_files_now().values())
        async with start_processes(
            "job", worlds.open_files, {0: (ready(tmp_path, 0), str(tmp_path / "go"))}, start_method="fork",
            log_dir=tmp_path, tee=Std.ALL,
        ) as context:  # fmt: skip
            supervisors = set(worlds.open_files_now().values()) - before
            (tmp_path / "go").touch()
            result = await context.wait(timeout=60)

        assert result is not None
        result.raise_for_failures()
        opened = list(result.return_values[0].values())
        assert opened[1].startswith("pipe:")
        assert {what for what in opened if what.startswith("pipe:") and opened.count(what) > 1} & supervisors == set()

    async def test_no_other_ranks_files(self, tmp_path: Path) -> None:
        """No log of another rank is open in it, redirected or teed."""
        logs = tmp_path / "logs"
        async with start_processes(
            "job",
            worlds.open_files,
            {rank: (ready(tmp_path, rank), str(tmp_path / "go")) for rank in range(3)},
            start_method="fork",
            log_dir=logs,
            redirects=Std.ALL,
            tee={2: Std.ALL},
        ) as context:
            await all_ready(tmp_path, range(3))
            (tmp_path / "go").touch()
            result = await context.wait(timeout=60)

        assert result is not None
        result.raise_for_failures()
        for rank, opened in result.return_values.items():
            own = {context.stdouts[rank], context.stderrs[rank]}
            assert {what for what in opened.values() if what.startswith(str(logs))} <= own

    async def test_no_handle_of_another_rank(self, tmp_path: Path) -> None:
        """No process handle is open in it that was not open in the supervisor before."""
        (tmp_path / "go").touch()
        calls = [(ready(tmp_path, rank), str(tmp_path / "go")) for rank in range(3)]
        values = await values_of("fork", worlds.open_files, *calls)

        assert not [what for opened in values for what in opened.values() if "pidfd" in what]


class TestSupervisorsWorld:
    """What must be as it was."""

    @each_method
    async def test_nothing_of_it_changes(self, method: str, tmp_path: Path) -> None:
        """Variables, arguments, handlers, mask, directory, umask and modules' settings are the same all the time."""
        args: dict[int, Any] = {0: (worlds.sleep_until_told, ready(tmp_path, 0)), 1: [worlds.place]}
        envs: dict[int, dict[str, str | None]] = {0: {"A": "1"}, 1: {"B": None}}
        given = repr([args, envs])
        with _odd_signals():
            before = _world()
            context = await start_processes(
                "job", worlds.call, args, envs, start_method=method, log_dir=tmp_path, tee={1: Std.ALL}
            )
            during = _world()
            await context.close(signal.SIGKILL)

            assert before == during == _world()
        assert repr([args, envs]) == given

    @pytest.mark.one_method
    @each_loop
    @each_method
    def test_default_start_method_is_not_settled(self, loop: str, method: str) -> None:
        """`multiprocessing` still has no default start method after a group, so that the program may choose."""
        program = f"""{WORLDS}
import multiprocessing
async def main():
    for _ in range(2):
        async with start_processes("job", worlds.double, {{0: (1,)}}, start_method={method!r}) as context:
            result = await context.wait()
        assert result.return_values == {{0: 2}}, result
        print(multiprocessing.get_start_method(allow_none=True))
run(main)
multiprocessing.set_start_method("fork")
"""
        assert run_driver(program, loop) == "None\nNone\n"

    @each_method
    async def test_streams_and_modules_stay(self, method: str, tmp_path: Path) -> None:
        """The supervisor's streams, search path and current process are the same objects with the same state."""
        state = [sys.stdout, sys.stderr, sys.stdin, multiprocessing.current_process(), sys.modules["__main__"]]
        path, argv = list(sys.path), list(sys.argv)

        async with function_group(method, tmp_path, worlds.sleep_until_told):
            now = [sys.stdout, sys.stderr, sys.stdin, multiprocessing.current_process(), sys.modules["__main__"]]
            assert all(one is other for one, other in zip(state, now, strict=True))
            assert (path, argv) == (sys.path, sys.argv)


def _world() -> tuple[object, ...]:
    umask = os.umask(0o22)
    os.umask(umask)
    wakeup = signal.set_wakeup_fd(-1)
    signal.set_wakeup_fd(wakeup)
    handlers = {number: signal.getsignal(number) for number in signal.valid_signals()}
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    default = multiprocessing.get_start_method(allow_none=True)
    return json.dumps(dict(os.environ)), handlers, mask, Path.cwd(), umask, wakeup, default
