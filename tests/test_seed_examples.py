"""The examples of both documents that this library re-imagines, as printed there plus ``await``.

Obvious typos of theirs are mended: a missing comma, ``args:`` for ``args=``, an unclosed brace.
"""

import asyncio
import inspect
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from aioelastic import (
    ContextStateError,
    DefaultLogsSpecs,
    MultiprocessContext,
    PContext,
    RanksError,
    Std,
    SubprocessContext,
    SubprocessHandler,
    get_subprocess_handler,
    start_processes,
)
from tests.helpers.function_groups import FORK_WARNING, METHODS
from tests.helpers.functions import give as foo
from tests.helpers.functions import trainer
from tests.helpers.programs import PYTHON, SLEEP, shells
from tests.helpers.waiting import is_alive, until, until_written

RUN = {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "2"}
"""Names the directory of logs in rank 0's variables."""


class TestMultiprocessingPage:
    """The Russian page, torch.distributed.elastic.multiprocessing."""

    async def test_second_example_echoes_to_console_and_file(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str]
    ) -> None:
        """Of two ``echo``, the first writes to the console and the second to its log, with no ``envs`` at all."""
        ctx = await start_processes(
            name="echo",
            entrypoint="echo",
            log_dir=tmp_path / "foobar",
            args={0: "hello", 1: "world"},
            redirects={1: Std.OUT},
        )

        result = await ctx.wait()
        await ctx.close()

        assert result is not None
        assert result.failures == {}
        assert capfd.readouterr().out == "hello\n"
        assert result.stdouts[0] == ""
        assert Path(result.stdouts[1]).read_text() == "world\n"
        assert Path(result.stdouts[1]).is_relative_to(tmp_path / "foobar")

    async def test_a_command_gives_a_subprocess_context(self) -> None:
        """What ``start_processes`` gives for a command is a ``SubprocessContext``, which is a ``PContext``."""
        ctx = await start_processes(name="echo", entrypoint="true", args={0: ()}, envs={0: {}})

        await ctx.close()

        assert isinstance(ctx, SubprocessContext)
        assert isinstance(ctx, PContext)

    @pytest.mark.filterwarnings(FORK_WARNING)
    @pytest.mark.parametrize("method", METHODS)
    async def test_first_example_runs_two_trainers(
        self, tmp_path: Path, capfd: pytest.CaptureFixture[str], method: str
    ) -> None:
        """Two functions get their arguments and variables; output goes to files, one stderr to the console too."""
        ctx = await start_processes(
            name="trainer",
            entrypoint=trainer,
            args={0: (1, 2, 3), 1: (4, 5, 6)},
            envs={0: {"LOCAL_RANK": 0}, 1: {"LOCAL_RANK": 1}},
            log_dir=tmp_path / "foobar",
            redirects=Std.ALL,  # write all worker stdout/stderr to a log file
            tee={0: Std.ERR},  # tee only local rank 0's stderr to console
            start_method=method,
        )

        # waits for all copies of trainer to finish
        result = await ctx.wait()
        await ctx.close()

        assert result is not None
        assert result.return_values == {0: 6, 1: 15}
        assert [Path(result.stdouts[rank]).read_text() for rank in (0, 1)] == ["0: 1 2 3\n", "1: 4 5 6\n"]
        assert [Path(result.stderrs[rank]).read_text() for rank in (0, 1)] == ["trained\n"] * 2
        assert capfd.readouterr() == ("", "[trainer0]:trained\n")

    async def test_a_function_gives_a_multiprocess_context(self) -> None:
        """What ``start_processes`` gives for a function is a ``MultiprocessContext``, which is a ``PContext``."""
        ctx = await start_processes(name="trainer", entrypoint=foo, args={0: ("bar",)}, envs={0: {}})

        await ctx.close()

        assert isinstance(ctx, MultiprocessContext)
        assert isinstance(ctx, PContext)

    async def test_two_copies_of_foo(self, tmp_path: Path) -> None:
        """``foo("bar0")`` and ``foo("bar1")`` are called, and what they return is there by rank."""
        ctx = await start_processes(
            name="trainer",
            entrypoint=foo,
            args={0: ("bar0",), 1: ("bar1",)},
            envs={0: {}, 1: {}},
            log_dir=tmp_path / "test",
        )

        result = await ctx.wait()
        await ctx.close()

        assert result is not None
        assert result.return_values == {0: "bar0", 1: "bar1"}

    async def test_envs_of_foo_missing_for_a_rank(self, tmp_path: Path) -> None:
        """The example marked as invalid is refused for a function as for a command, and makes nothing."""
        with pytest.raises(RuntimeError, match=r"envs .*missing 1"):
            await start_processes(
                name="trainer",
                entrypoint=foo,
                args={0: ("bar0",), 1: ("bar1",)},
                envs={0: {}},
                log_dir=tmp_path / "test",
            )

        assert list(tmp_path.iterdir()) == []

    async def test_a_context_made_with_the_seeds_arguments(self, tmp_path: Path) -> None:
        """``MultiprocessContext`` takes the page's arguments in the page's order, and is started once."""
        ctx = MultiprocessContext("trainer", foo, {0: ("bar",)}, {0: {}}, "spawn", DefaultLogsSpecs(tmp_path))

        await ctx.start()
        result = await ctx.wait()
        with pytest.raises(ContextStateError):
            await ctx.start()
        await ctx.close()

        assert result is not None
        assert result.return_values == {0: "bar"}

    async def test_first_example_as_a_command(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        """Integer variables reach their ranks, all output goes to files, and one rank's stderr to the console too."""
        ctx = await start_processes(
            name="trainer",
            entrypoint="/bin/sh",
            args={rank: ("-c", 'echo "$LOCAL_RANK: $*"; echo "trained" >&2', "trainer", *abc) for rank, abc in ABC},
            envs={0: {"LOCAL_RANK": 0}, 1: {"LOCAL_RANK": 1}},
            log_dir=tmp_path,
            redirects=Std.ALL,  # write all worker stdout/stderr to a log file
            tee={0: Std.ERR},  # tee only local rank 0's stderr to console
        )

        result = await ctx.wait()
        await ctx.close()

        assert result is not None
        assert [Path(result.stdouts[rank]).read_text() for rank in (0, 1)] == ["0: 1 2 3\n", "1: 4 5 6\n"]
        assert [Path(result.stderrs[rank]).read_text() for rank in (0, 1)] == ["trained\n"] * 2
        assert capfd.readouterr() == ("", "[trainer0]:trained\n")

    async def test_two_copies_of_touch(self, tmp_path: Path) -> None:
        """``touch file1`` and ``touch file2`` make both files in the working directory asked for."""
        ctx = await start_processes(
            name="trainer",
            entrypoint="/usr/bin/touch",
            args={0: ("file1",), 1: ("file2",)},
            envs={0: {}, 1: {}},
            log_dir=tmp_path / "logs",
            cwd=tmp_path,
        )

        result = await ctx.wait()
        await ctx.close()

        assert result is not None
        assert not result.is_failed()
        assert {"file1", "file2"} <= {path.name for path in tmp_path.iterdir()}

    async def test_arguments_are_cast_to_strings(self, tmp_path: Path) -> None:
        """Numbers, and a list as one argument, are passed as their text."""
        ctx = await start_processes(
            name="trainer",
            entrypoint="/usr/bin/echo",
            args={0: (1, 2, 3), 1: ([1, 2, 3],)},
            envs={0: {}, 1: {}},
            log_dir=tmp_path,
            redirects=Std.OUT,
        )

        result = await ctx.wait()
        await ctx.close()

        assert result is not None
        assert [Path(path).read_text() for path in result.stdouts.values()] == ["1 2 3\n", "[1, 2, 3]\n"]

    async def test_envs_missing_for_a_rank(self, tmp_path: Path) -> None:
        """The example marked as invalid is a ``RuntimeError`` that names the missing rank, and makes nothing."""
        with pytest.raises(RuntimeError, match=r"envs .*missing 1") as caught:
            await start_processes(
                name="trainer",
                entrypoint="/usr/bin/touch",
                args={0: ("bar0",), 1: ("bar1",)},
                envs={0: {}},
                log_dir=tmp_path / "logs",
            )

        assert isinstance(caught.value, RanksError)
        assert list(tmp_path.iterdir()) == []

    async def test_signature_is_the_seeds(self) -> None:
        """All arguments of the page are there by name, in its order."""
        names = [name for name, each in inspect.signature(start_processes).parameters.items() if each.kind != 3]

        assert names == [
            "name",
            "entrypoint",
            "args",
            "envs",
            "logs_specs",
            "log_line_prefixes",
            "start_method",
            "numa_options",
            "duplicate_stdout_filters",
            "duplicate_stderr_filters",
        ]

    async def test_files_of_every_rank(self, tmp_path: Path) -> None:
        """Logs, error files and filtered copies are where both pages say, by run, attempt and rank."""
        ctx = await start_processes(
            "trainer",
            "/bin/sh",
            shells("echo keep; echo drop; echo keep >&2", "echo keep >&2"),
            {0: RUN, 1: {}},
            DefaultLogsSpecs(log_dir=tmp_path, tee=Std.ALL),
            duplicate_stdout_filters=["keep"],
            duplicate_stderr_filters=["nothing"],
        )

        result = await ctx.wait()
        await ctx.close()

        attempt = tmp_path / "job" / "attempt_2"
        assert result is not None
        assert result.stdouts == {rank: str(attempt / str(rank) / "stdout.log") for rank in (0, 1)}
        assert result.stderrs == {rank: str(attempt / str(rank) / "stderr.log") for rank in (0, 1)}
        assert ctx.error_files == {rank: str(attempt / str(rank) / "error.json") for rank in (0, 1)}
        assert (attempt / "filtered_stdout.log").read_text() == "[trainer0]:keep\n"
        assert (attempt / "filtered_stderr.log").read_text() == ""


ABC = ((0, (1, 2, 3)), (1, (4, 5, 6)))
"""Rank and arguments of the page's first example."""


class TestSubprocessHandlerPage:
    """The Chinese page, torch.distributed.elastic.multiprocessing.subprocess_handler."""

    async def test_streams_go_to_the_files_named(self, tmp_path: Path) -> None:
        """With two paths, stdout and stderr are in those files, and the pid is the process's."""
        handler = await get_subprocess_handler(
            entrypoint="sh",
            args=("-c", "echo out $$; echo err >&2"),
            env={},
            stdout=str(tmp_path / "stdout.log"),
            stderr=str(tmp_path / "stderr.log"),
            local_rank_id=3,
            numa_options=None,
        )

        code = await handler.wait()

        assert isinstance(handler, SubprocessHandler)
        assert (code, handler.local_rank_id) == (0, 3)
        assert isinstance(handler.proc, asyncio.subprocess.Process)
        assert (tmp_path / "stdout.log").read_text() == f"out {handler.proc.pid}\n"
        assert (tmp_path / "stderr.log").read_text() == "err\n"

    async def test_none_inherits_the_console(self, capfd: pytest.CaptureFixture[str]) -> None:
        """Without paths, both streams are the supervisor's own."""
        handler = await get_subprocess_handler("sh", ("-c", "echo out; echo err >&2"), {}, None, None, 0)

        await handler.wait()

        assert capfd.readouterr() == ("out\n", "err\n")

    async def test_env_is_merged_into_the_supervisors(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The rank has the supervisor's variables, with the given ones put over them."""
        monkeypatch.setenv("INHERITED", "from above")
        monkeypatch.setenv("REPLACED", "old")
        log = tmp_path / "stdout.log"
        script = 'echo "$INHERITED, $REPLACED, $MASTER_ADDR:$MASTER_PORT"'
        env = {"REPLACED": "new", "MASTER_ADDR": "localhost", "MASTER_PORT": "29500"}

        handler = await get_subprocess_handler("sh", ("-c", script), env, log, None, 0)
        await handler.wait()

        assert log.read_text() == "from above, new, localhost:29500\n"
        assert os.environ["REPLACED"] == "old"
        assert "MASTER_ADDR" not in os.environ

    async def test_arguments_do_not_pass_a_shell(self, tmp_path: Path) -> None:
        """Every argument is made text and reaches the program as it is."""
        log = tmp_path / "stdout.log"
        args: tuple[Any, ...] = ("$HOME; echo *", 2, ["a b"])

        handler = await get_subprocess_handler("printf", (r"%s\n", *args), {}, log, None, 0)
        await handler.wait()

        assert log.read_text() == "$HOME; echo *\n2\n['a b']\n"

    @pytest.mark.parametrize("number", [None, signal.SIGKILL])
    async def test_close_signals_the_whole_group(self, tmp_path: Path, number: signal.Signals | None) -> None:
        """``close`` ends the rank and the children it has made, with SIGTERM or the signal given."""
        log = tmp_path / "stdout.log"
        handler = await get_subprocess_handler("sh", ("-c", "sleep 60 & echo $!,; wait"), {}, log, None, 0)
        await until_written(log, ",")
        child = int(log.read_text().rstrip(",\n"))
        assert os.getpgid(handler.pid) == os.getsid(handler.pid) == handler.proc.pid

        handler.close(death_sig=number)

        assert await handler.wait() == -(number or signal.SIGTERM)
        await until(lambda: not is_alive(child), "the end of the child")

    async def test_context_keeps_a_handler_per_rank(self, tmp_path: Path) -> None:
        """A running context has its handlers by rank, whose pids tell which log belongs to which process."""
        async with start_processes(
            "job", "sh", shells("echo $$", "echo $$"), log_dir=tmp_path, redirects=Std.OUT
        ) as ctx:
            result = await ctx.wait()

            assert isinstance(ctx, SubprocessContext)
            assert result is not None
            pids = {rank: each.proc.pid for rank, each in ctx.subprocess_handlers.items()}
            assert {rank: int(Path(path).read_text()) for rank, path in result.stdouts.items()} == pids == ctx.pids()

    async def test_failures_say_rank_pid_code_and_error_file(self, tmp_path: Path) -> None:
        """A rank that exits with another code than 0 is a failure with its rank, pid, exit code and error file."""
        async with start_processes(
            "job", PYTHON, {0: ("-S", "-c", "import sys; sys.exit(7)")}, log_dir=tmp_path
        ) as ctx:
            result = await ctx.wait()

            assert result is not None
            failure = result.failures[0]
            assert (failure.local_rank, failure.pid, failure.exitcode) == (0, ctx.pids()[0], 7)
            assert failure.error_file == "<N/A>"

    async def test_close_of_all_ends_what_still_runs(self) -> None:
        """Closing a context ends every rank that is alive."""
        ctx = await start_processes("job", "sh", shells(SLEEP, SLEEP))

        await ctx.close()
        result = await ctx.wait()

        assert result is not None
        assert [each.signal for each in result.exits.values()] == ["SIGTERM", "SIGTERM"]
        assert not result.is_failed()
