"""What cannot be used or started: one typed error each, and nothing left of the group."""

import contextlib
import os
import re
import resource
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from aioelastic import (
    AioelasticError,
    DefaultLogsSpecs,
    DescriptorLimitError,
    LogDirectoryError,
    RanksError,
    RankStartError,
    SpecificationError,
    SpecificationTypeError,
    Std,
    start_processes,
)
from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.programs import SLEEP, shells

TWO: dict[str, Any] = {"name": "job", "entrypoint": "sh", "args": shells(SLEEP, SLEEP)}
"""A good group of two ranks."""

LONG = "x" * 2_100_000
"""Longer than any kernel takes as one argument (32 pages of 64 KiB)."""


class Unspeakable:
    """An argument that cannot be made text."""

    def __str__(self) -> str:
        """Fail."""
        raise KeyError("hunter2")


@pytest.fixture(name="logs")
def _logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give a directory for logs, and see that neither it nor the one for temporary files has anything in the end."""
    logs, temporary = tmp_path / "logs", tmp_path / "temporary"
    logs.mkdir()
    temporary.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))
    yield logs
    assert [path.name for place in (logs, temporary) for path in place.rglob("*")] == []


RANKS = [
    ({"args": {0: (), 2: ()}}, "args", r"missing 1; extra 2 \(the ranks are 0\.\.1\)"),
    ({"args": {1: (), 2: ()}}, "args", "missing 0; extra 2"),
    ({"args": {True: (), 0: ()}}, "args", "missing 1; extra True"),
    ({"envs": {0: {}}}, "envs", "missing 1"),
    ({"envs": {}}, "envs", "missing 0, 1"),
    ({"envs": {0: {}, 1: {}, 2: {}}}, "args", "missing 2"),
    ({"log_line_prefixes": {2: "x"}}, "log_line_prefixes", "extra 2"),
    ({"redirects": {2: Std.OUT}}, "redirects", "extra 2"),
    ({"tee": {-1: Std.ERR}}, "tee", "extra -1"),
    ({"local_ranks_filter": [0, 5]}, "local_ranks_filter", "extra 5"),
]

VALUES = [
    ({"start_method": "thread"}, "start_method is 'thread': give one of spawn, fork, forkserver"),
    ({"logs_specs": DefaultLogsSpecs(), "redirects": Std.OUT}, "logs_specs and redirects say the same thing twice"),
    ({"logs_specs": DefaultLogsSpecs(), "log_dir": "x", "tee": Std.OUT}, "logs_specs and log_dir, tee"),
    ({"logs_specs": DefaultLogsSpecs(), "local_ranks_filter": [0]}, "logs_specs and local_ranks_filter"),
    ({"entrypoint": ""}, "entrypoint is empty: name a program"),
    ({"entrypoint": "s\0h"}, "entrypoint has a NUL"),
    ({"args": {0: (), 1: ("a", "b\0")}}, "args of rank 1, index 1, has a NUL"),
    ({"args": {0: (), 1: (Unspeakable(),)}}, "args of rank 1, index 0, .*cannot be made text"),
    ({"args": {0: (), 1: (LONG,)}}, r"args of rank 1, index 0, takes \d+ bytes .*pass it in a file"),
    ({"envs": {0: {}, 1: {"KEY": LONG}}}, r"envs of rank 1, variable 'KEY', takes \d+ bytes"),
    ({"envs": {0: {}, 1: {"A=B": "x"}}}, "envs of rank 1: .* must not be empty nor have '='"),
    ({"envs": {0: {}, 1: {"": "x"}}}, "envs of rank 1: .* must not be empty"),
    ({"envs": {0: {}, 1: {"K\0": "x"}}}, "envs of rank 1: .* nor have '=' or a NUL"),
    ({"envs": {0: {}, 1: {"KEY": "x\0y"}}}, "envs of rank 1, variable 'KEY', has a NUL"),
    ({"shutdown_timeout": -1}, "shutdown_timeout is -1: give 0 seconds or more"),
    ({"drain_timeout": -0.5}, r"drain_timeout is -0\.5: give 0 seconds or more"),
    ({"drain_timeout": float("nan")}, "drain_timeout is nan"),
    ({"death_sig": 4000}, "death_sig is 4000, which is no signal here"),
    ({"death_sig": signal.SIGSTOP}, "death_sig is SIGSTOP, which ends no process"),
    ({"drain_timeout": 10**400}, "drain_timeout is too large a number"),
    ({"name": "a\nb"}, "name .* must be one line"),
    ({"name": "a\ud800"}, r"name is 'a\\ud800': no output has '\\ud800'"),
    ({"log_line_prefixes": {1: "\ud800"}}, r"log_line_prefixes\[1\] is '\\ud800': no output has"),
    ({"log_line_prefixes": {1: "a\n"}}, r"log_line_prefixes\[1\] has a line end"),
    ({"log_dir": ""}, "log_dir '' is no path"),
    ({"redirects": 4}, "redirects must be Std"),
    ({"local_ranks_filter": [-1]}, "local_ranks_filter must hold ranks"),
]

TYPES = [
    ({"numa_options": object()}, "numa_options must be a NumaOptions or None, not object"),
    ({"name": 3}, "name must be a str, not int"),
    ({"entrypoint": 3}, "entrypoint is of type int: give a command .* or a function"),
    ({"entrypoint": b"sh"}, "entrypoint is of type bytes"),
    ({"args": [()]}, r"args must map ranks to values, as in \{0: ..., 1: ...\}"),
    ({"args": {0: (), 1: 5}}, r"args of rank 1 must be a tuple .*\(argument,\)"),
    ({"envs": [{}, {}]}, "envs must map ranks"),
    ({"envs": {0: {}, 1: 5}}, "envs of rank 1 must be a map or None, not int"),
    ({"envs": {0: {}, 1: "A=1"}}, "envs of rank 1 must be a map or None, not str"),
    ({"envs": {0: {}, 1: {"KEY": True}}}, "envs of rank 1, variable 'KEY', is a bool"),
    ({"envs": {0: {}, 1: {"KEY": b"x"}}}, "envs of rank 1, variable 'KEY', must be a str.*not bytes"),
    ({"envs": {0: {}, 1: {7: "x"}}}, "envs of rank 1: a variable's name must be a str, not int"),
    ({"logs_specs": "logs"}, "logs_specs must be a LogsSpecs, not str"),
    ({"log_line_prefixes": ["a", "b"]}, "log_line_prefixes must map ranks"),
    ({"log_line_prefixes": {1: 5}}, r"log_line_prefixes\[1\] must be a str, not int"),
    ({"redirects": "3"}, "redirects must be Std.NONE, OUT, ERR or ALL"),
    ({"tee": {1: "1"}}, r"tee\[1\] must be Std"),
    ({"local_ranks_filter": "01"}, "local_ranks_filter must be a set of ranks, not str"),
    ({"log_dir": 5}, "log_dir must be a str or a path"),
    ({"duplicate_stdout_filters": "word"}, "duplicate_stdout_filters"),
    ({"duplicate_stderr_filters": ["word", 5]}, "duplicate_stderr_filters"),
    ({"duplicate_stdout_filters": [re.compile(b"x")]}, "duplicate_stdout_filters"),
    ({"shutdown_timeout": "30"}, "shutdown_timeout must be a number of seconds, not str"),
    ({"drain_timeout": None}, "drain_timeout must be a number of seconds"),
    ({"death_sig": "SIGTERM"}, r"death_sig must be a signal such as signal\.SIGTERM, not str"),
]


class TestBeforeAnythingExists:
    """Arguments that are wrong by themselves."""

    @pytest.mark.parametrize(("changed", "argument", "faults"), RANKS)
    async def test_ranks(self, changed: dict[str, Any], argument: str, faults: str, logs: Path) -> None:
        """A map with ranks missing or made up is a ``RanksError`` and a ``RuntimeError`` that names them."""
        with pytest.raises(RuntimeError, match=f"{argument} does not fit the group: .*{faults}") as caught:
            await start_processes(**{**TWO, "log_dir": logs, **changed})

        assert isinstance(caught.value, RanksError)
        assert isinstance(caught.value, ValueError)
        assert caught.value.argument == argument

    @pytest.mark.parametrize(("changed", "words"), VALUES)
    def test_values(self, changed: dict[str, Any], words: str, logs: Path) -> None:
        """A value that cannot be used is a ``ValueError`` at the call that says which and what would do."""
        with pytest.raises(ValueError, match=words) as caught:
            start_processes(**{**TWO, **({} if "logs_specs" in changed else {"log_dir": logs}), **changed})

        assert isinstance(caught.value, SpecificationError)
        assert not isinstance(caught.value, TypeError)
        assert "hunter2" not in str(caught.value)
        assert len(str(caught.value)) < 500

    @pytest.mark.parametrize(("changed", "words"), TYPES)
    def test_types(self, changed: dict[str, Any], words: str, logs: Path) -> None:
        """A value of a wrong type is a ``TypeError`` at the call that says which and what is taken."""
        with pytest.raises(TypeError, match=words) as caught:
            start_processes(**{**TWO, **({} if "logs_specs" in changed else {"log_dir": logs}), **changed})

        assert isinstance(caught.value, SpecificationTypeError)
        assert isinstance(caught.value, ValueError)

    async def test_times_of_a_running_group(self) -> None:
        """A close refuses bad times and signals, and a wait what is no number; the group goes on."""
        context = await start_processes(**TWO)

        with pytest.raises(SpecificationError, match="timeout is -1"):
            await context.close(timeout=-1)
        with pytest.raises(SpecificationError, match="timeout is too large a number"):
            await context.close(timeout=10**400)
        with pytest.raises(SpecificationError, match="timeout is too large a number"):
            await context.wait(10**400)
        with pytest.raises(SpecificationError, match="death_sig is 4000"):
            await context.close(4000)  # type: ignore[arg-type]  # the mistake under test
        with pytest.raises(SpecificationTypeError, match="timeout must be a number"):
            await context.wait("1")  # type: ignore[call-overload]  # the mistake under test
        assert await context.wait(0) is None

        await context.close()


def _file(path: Path, text: str, mode: int = 0o755) -> Path:
    path.write_text(text)
    path.chmod(mode)
    return path


class TestWhatTheSystemRefuses:
    """Commands, directories and limits that turn out to be unusable at the start."""

    @pytest.mark.parametrize(
        ("entrypoint", "builtin", "symbol", "remedy"),
        [
            ("no-such-program", FileNotFoundError, "ENOENT 2", "check the path, or the rank's PATH"),
            ("/no/such/program", FileNotFoundError, "ENOENT 2", "check the path"),
            ("{place}/data", PermissionError, "EACCES 13", "make it an executable file"),
            ("{place}", PermissionError, "EACCES 13", "make it an executable file"),
            ("{place}/data/below", NotADirectoryError, "ENOTDIR 20", "see the errno"),
            ("{place}/script", OSError, "ENOEXEC 8", "give the script a first line such as #!/bin/sh"),
            ("{place}/dangling", FileNotFoundError, "ENOENT 2", "check the path"),
        ],
    )
    async def test_command(
        self, tmp_path: Path, logs: Path, entrypoint: str, builtin: type[OSError], symbol: str, remedy: str
    ) -> None:
        """A command that does not run is a ``RankStartError``, and the ``OSError`` that ``subprocess`` would raise."""
        place = tmp_path / "place"
        place.mkdir()
        _file(place / "data", "data", 0o644)
        _file(place / "script", "echo no first line\n")
        _file(place / "dangling", "#!/no/such/interpreter\n")
        command = entrypoint.format(place=place)

        with pytest.raises(builtin, match=f"rank 0 could not start: .*{symbol}.*{remedy}") as caught:
            await start_processes("job", command, {0: ("a",), 1: ()}, log_dir=logs, tee=Std.ALL)

        assert isinstance(caught.value, RankStartError)
        assert (caught.value.local_rank, caught.value.command, caught.value.cwd) == (0, (command, "a"), None)

    @pytest.mark.parametrize(("cwd", "builtin"), [("/no/such", FileNotFoundError), ("/etc/passwd", NotADirectoryError)])
    async def test_cwd(self, logs: Path, cwd: str, builtin: type[OSError]) -> None:
        """A working directory that is none is the built-in error, with the directory in it."""
        with pytest.raises(builtin, match=f"rank 0 could not start: .*cwd '{cwd}'") as caught:
            await start_processes(**TWO, cwd=cwd, log_dir=logs, redirects=Std.ALL)

        assert isinstance(caught.value, RankStartError)
        assert caught.value.cwd == cwd

    @pytest.mark.parametrize("tee", [Std.NONE, Std.ALL])
    async def test_too_much_in_total(self, logs: Path, tee: Std) -> None:
        """Arguments that are too much only together are E2BIG, with the rank and not the megabytes in the error."""
        stack, _ = resource.getrlimit(resource.RLIMIT_STACK)
        count = 6_400_000 // 100_000 if stack == resource.RLIM_INFINITY else min(stack // 4, 6_400_000) // 100_000 + 2
        many = ("-c", SLEEP, *["x" * 100_000] * count)

        with pytest.raises(RankStartError, match=r"rank 2 could not start: .*E2BIG 7.*pass less") as caught:
            await start_processes("job", "sh", {0: ("-c", SLEEP), 1: ("-c", SLEEP), 2: many}, log_dir=logs, tee=tee)

        assert len(str(caught.value)) < 1000

    async def test_file_in_place_of_log_dir(self, tmp_path: Path) -> None:
        """A file where the logs should go is a ``NotADirectoryError`` before anything starts."""
        file = _file(tmp_path / "file", "precious")

        for log_dir in (file, file / "below"):
            with pytest.raises(NotADirectoryError, match="give a log_dir") as caught:
                await start_processes(**TWO, log_dir=log_dir)
            assert isinstance(caught.value, LogDirectoryError)

        assert file.read_text() == "precious"

    async def test_log_dir_where_nothing_can_be_made(self) -> None:
        """A place where no directory can be made is an error with that place, and no rank starts."""
        with pytest.raises(LogDirectoryError, match="/proc/logs") as caught:
            await start_processes(**TWO, log_dir="/proc/logs", redirects=Std.ALL)

        assert isinstance(caught.value, AioelasticError)
        assert isinstance(caught.value, OSError)

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
    @pytest.mark.parametrize("loop", LOOPS)
    def test_log_dir_of_somebody_else(self, loop: str, tmp_path: Path) -> None:
        """A directory that may not be written is a ``PermissionError``; so is a command that may not be run."""
        private = _file(tmp_path / "private", "#!/bin/sh\n", 0o700)
        program = """
os.setgroups([]); os.setgid(65534); os.setuid(65534)
async def main():
    for options in ({"log_dir": "/var/lib", "entrypoint": "true"}, {"entrypoint": sys.argv[2]}):
        try:
            await start_processes(name="job", args={0: ()}, **options)
        except PermissionError as error:
            print(type(error).__mro__[1].__name__, error.errno)
run(main)
"""
        for folder in (tmp_path, *tmp_path.parents[:2]):
            with contextlib.suppress(OSError):
                folder.chmod(0o755)

        assert run_driver(program, loop, private) == "LogDirectoryError 13\nRankStartError 13\n"

    async def test_too_few_descriptors(self, logs: Path) -> None:
        """A limit of open files that cannot hold the group is an error up front that names the need."""
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (psutil.Process().num_fds() + 40, limits[1]))
        try:
            with pytest.raises(DescriptorLimitError, match=r"30 ranks need up to \d+ open files .*ulimit -n") as caught:
                await start_processes("job", "true", dict.fromkeys(range(30), ()), log_dir=logs, tee=Std.ALL)
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

        assert isinstance(caught.value, OSError)
        assert caught.value.needed > caught.value.limit


class TestAllOrNothing:
    """A rank in the middle that cannot start."""

    @pytest.mark.parametrize("path", ["/no/such/folder", ""])
    async def test_command_missing_for_one_rank(self, tmp_path: Path, logs: Path, path: str) -> None:
        """Where only one rank's PATH lacks the command, no rank runs a line."""
        envs: dict[int, dict[str, str]] = {0: {}, 1: {}, 2: {"PATH": path}, 3: {}}
        args = dict.fromkeys(range(4), ("-c", f"touch {tmp_path}/ran-$$; {SLEEP}"))

        with pytest.raises(FileNotFoundError, match=r"rank 2 could not start"):
            await start_processes("job", "sh", args, envs, log_dir=logs, tee=Std.ALL)

        assert list(tmp_path.glob("ran-*")) == []

    @pytest.mark.parametrize("streams", [{}, {"redirects": Std.ALL}, {"tee": Std.ALL}, {"log_dir": None}])
    @pytest.mark.parametrize("blocked", [False, True])
    @pytest.mark.half
    async def test_failure_of_exec(self, tmp_path: Path, logs: Path, streams: dict[str, Any], blocked: bool) -> None:
        """Where only the kernel can tell that a rank does not run, those before it are killed and reaped."""
        good, bad = tmp_path / "good", tmp_path / "bad"
        good.mkdir()
        bad.mkdir()
        _file(good / "job", f"#!/bin/sh\n{SLEEP}\n")
        _file(bad / "job", "no first line\n")
        paths = [f"{place}:{os.environ['PATH']}" for place in (good, good, bad, good)]
        before = psutil.Process().children()

        signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1} if blocked else ())
        try:
            with pytest.raises(RankStartError, match=r"rank 2 could not start: .*ENOEXEC"):
                await start_processes(
                    "trainer",
                    "job",
                    dict.fromkeys(range(4), ()),
                    {rank: {"PATH": path} for rank, path in enumerate(paths)},
                    **{"log_dir": logs, **streams},
                )
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGUSR1})

        assert [child for child in psutil.Process().children() if child not in before and _runs(child)] == []
        assert subprocess.run(["pgrep", "-f", str(good)], capture_output=True, check=False).stdout == b""


def _runs(process: psutil.Process) -> bool:
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
