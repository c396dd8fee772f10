"""What reports from the field say about output, turned into what must hold here, each with its neighbours."""

import asyncio
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from aioelastic import Std, start_processes
from tests.helpers.programs import shells
from tests.helpers.supervisors import run_pythons, run_shells, supervise, supervisor, wait_until
from tests.helpers.waiting import until_written

MARK = " [cut by aioelastic]"


@pytest.mark.parametrize("options", [{"tee": Std.OUT}, {"tee": Std.ALL}, {"redirects": Std.ALL}, {}])
@pytest.mark.parametrize("code", [3, 0])
async def test_a_background_process_on_stdout_does_not_hold_up_the_result(
    code: int, options: dict[str, Any], tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A grandchild that keeps stdout open delays neither result nor output: both are there in a second.

    https://github.com/python/cpython/issues/151983
    """
    loop = asyncio.get_running_loop()
    begin = loop.time()

    result = await run_shells(f"seq 1 5000; printf end; sleep 30 & exit {code}", log_dir=tmp_path, **options)

    assert loop.time() - begin < 2
    assert result.exits[0].exitcode == code
    whole = "".join(f"{number}\n" for number in range(1, 5001)) + "end"
    shown = capfd.readouterr().out
    assert (Path(result.stdouts[0]).read_text() if result.stdouts[0] else shown) == whole
    assert len(shown.splitlines()) == (0 if "redirects" in options else 5001)


async def test_a_background_process_that_goes_on_printing_is_cut(tmp_path: Path) -> None:
    """One that left the group and floods the pipe for ever is cut after drain_timeout, and what came before is kept.

    https://github.com/python/cpython/issues/151983
    """
    flood = f"setsid sh -c 'echo up >{tmp_path}/up; exec yes' & while ! test -e {tmp_path}/up; do :; done; exit 3"
    loop = asyncio.get_running_loop()
    begin = loop.time()

    result = await run_shells(f"echo first; {flood}", log_dir=tmp_path, tee=Std.OUT, drain_timeout=0.3)

    assert loop.time() - begin < 5
    assert result.exits[0].exitcode == 3
    with Path(result.stdouts[0]).open() as file:
        assert file.readline() == "first\n"
    # It has died of SIGPIPE by now: nobody holds the other end of its pipe.


async def test_lines_of_10_mb_break_nothing(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A huge line on each stream is exact in the file, cut with marks on the console, and what follows is there.

    https://github.com/NousResearch/hermes-agent/issues/31417
    """
    program = """
import os
for fd in (1, 2):
    data = b"x" * 10_000_000 + b"\\ndone\\n"
    while data:
        data = data[os.write(fd, data):]
"""
    result = await run_pythons(program, log_dir=tmp_path, tee=Std.ALL, duplicate_stdout_filters=["done"])

    shown = capfd.readouterr()
    for path, text in ((result.stdouts[0], shown.out), (result.stderrs[0], shown.err)):
        assert Path(path).read_bytes() == b"x" * 10_000_000 + b"\ndone\n"
        *pieces, last, done = text.splitlines()
        assert done == "[job0]:done"
        assert all(piece.endswith(MARK) and len(piece) < 66_000 for piece in pieces)
        assert not last.endswith(MARK)
        assert sum(piece.count("x") for piece in (*pieces, last)) == 10_000_000
    assert (Path(result.stdouts[0]).parents[1] / "filtered_stdout.log").read_text() == "[job0]:done\n"


@pytest.mark.parametrize(("size", "cuts"), [(65_535, 0), (65_536, 0), (65_537, 1), (131_072, 1), (131_073, 2)])
@pytest.mark.parametrize("end", ["\n", ""])
async def test_lines_around_the_limit_are_cut_where_they_must(
    size: int, cuts: int, end: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Up to 64 KiB a line is whole on the console, beyond it is cut once per 64 KiB, with or without an end.

    https://github.com/NousResearch/hermes-agent/issues/31417
    """
    result = await run_shells(
        f"head -c {size} /dev/zero | tr '\\0' x; printf '{end}'".replace("\n", "\\n"), log_dir=tmp_path, tee=Std.OUT
    )

    lines = capfd.readouterr().out.splitlines()
    assert Path(result.stdouts[0]).read_text() == "x" * size + end
    assert sum(line.endswith(MARK) for line in lines) == cuts == len(lines) - 1
    assert "".join(line.removeprefix("[job0]:").removesuffix(MARK) for line in lines) == "x" * size


async def test_a_long_line_is_not_cut_through_a_character(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Pieces of a long line of wide characters are text by themselves: no character is torn.

    https://github.com/NousResearch/hermes-agent/issues/31417
    """
    program = "print('\\u20ac\\U0001f600' * 40_000)"
    await run_pythons(program, envs={0: {"PYTHONUTF8": "1"}}, log_dir=tmp_path, tee=Std.OUT)

    lines = capfd.readouterr().out.splitlines()
    assert len(lines) > 3
    assert "".join(line.removeprefix("[job0]:").removesuffix(MARK) for line in lines) == "€😀" * 40_000


@pytest.mark.parametrize(
    "bad",
    [b"\xff", b"\xff\n", b"caf\xe9 ", b"\xe2\x82", b"\x80\xbf\n", b"\xed\xa0\x80", "utf-16\n".encode("utf-16"), b"\0"],
)
async def test_undecodable_bytes_end_nothing(
    bad: bytes, tmp_path: Path, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    """After bytes that are no text all 1000 lines are on the console, and the file has the raw bytes.

    https://github.com/pytorch/pytorch/issues/119298
    """
    octal = "".join(f"\\{byte:03o}" for byte in bad)

    result = await run_shells(
        f"printf '{octal}'; seq 1 1000; printf '{octal}'",
        log_dir=tmp_path,
        tee=Std.OUT,
        duplicate_stdout_filters=["99"],
    )

    raw = bad + b"".join(b"%d\n" % number for number in range(1, 1001)) + bad
    assert Path(result.stdouts[0]).read_bytes() == raw
    shown = capfdbinary.readouterr().out.replace(b"[job0]:", b"")
    assert shown == raw + (b"" if bad.endswith(b"\n") else b"\n")
    filtered = (Path(result.stdouts[0]).parents[1] / "filtered_stdout.log").read_text()
    assert filtered.splitlines()[-1] == "[job0]:999"


def test_undecodable_bytes_pass_in_an_ascii_locale(tmp_path: Path) -> None:
    """The supervisor's own locale and encoding have no say in what bytes pass.

    https://github.com/pytorch/pytorch/issues/119298
    """
    body = f"""
        script = "printf '\\\\377\\\\n\\\\303\\\\244\\\\n'; seq 1 1000"
        async with start_processes("job", "sh", {{0: ("-c", script)}}, log_dir="{tmp_path}", tee=Std.OUT) as context:
            await context.wait()
    """
    env = {**os.environ, "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "PYTHONIOENCODING": "ascii"}

    shown = supervise(body, env=env).stdout

    assert shown.startswith(b"[job0]:\xff\n[job0]:\xc3\xa4\n")
    assert len(shown.splitlines()) == 1002


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
@pytest.mark.parametrize("end", ["\n", "\r\n", ""])
@pytest.mark.half
async def test_a_progress_bar_off_a_terminal_is_one_record(
    stream: str, end: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    r"""Of 10000 states of a ``\r`` bar the console gets the last one, the file all of them.

    https://github.com/meta-pytorch/torchx/issues/424 and https://github.com/tqdm/tqdm/issues/750
    """
    program = f"""
import sys
for step in range(10_001):
    sys.{stream}.write(f"\\r{{step:5}}/10000 [{{'#' * (step // 500):20}}]"); sys.{stream}.flush()
sys.{stream}.write({end!r})
"""
    result = await run_pythons(program, log_dir=tmp_path, tee=Std.ALL)

    shown = getattr(capfd.readouterr(), stream[3:] if stream == "stderr" else "out")
    assert shown == f"[job0]:10000/10000 [{'#' * 20}]\n"
    raw = Path(getattr(result, f"{stream}s")[0]).read_bytes()
    assert raw.count(b"\r") == 10_001 + end.count("\r")


async def test_bars_between_lines_leave_the_lines(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    r"""Lines printed between bars, as trainers do, are all there, and each bar is one record.

    https://github.com/meta-pytorch/torchx/issues/424
    """
    program = """
for epoch in range(20):
    for step in range(200):
        print(f"\\repoch {epoch}: {step}", end="", flush=True)
    print()
    print(f"loss of {epoch}", flush=True)
"""
    await run_pythons(program, log_dir=tmp_path, tee=Std.OUT)

    expected = [f"[job0]:{text}" for epoch in range(20) for text in (f"epoch {epoch}: 199", f"loss of {epoch}")]
    assert capfd.readouterr().out.splitlines() == expected


async def test_a_log_directory_that_goes_away_blocks_nobody(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """With the log directory removed, replaced or made read-only mid-run the rank ends by itself and is shown whole.

    https://github.com/Supervisor/supervisor/issues/240
    """
    logs = tmp_path / "logs"
    script = f"echo up; while ! test -e {tmp_path}/go; do sleep 0.01; done; seq 1 100000; seq 1 100000 >&2"
    async with start_processes(
        "job", "sh", shells(script, script), log_dir=logs, tee=Std.OUT, redirects=Std.ALL
    ) as context:
        for path in context.stdouts.values():
            await until_written(path, "up\n")
        shutil.rmtree(logs)
        logs.write_text("a file in its place")
        (tmp_path / "go").touch()
        result = await context.wait(timeout=30)

    assert result is not None
    assert not result.is_failed()
    assert len(capfd.readouterr().out.splitlines()) == 2 * 100_001
    assert logs.read_text() == "a file in its place"


def test_a_file_over_its_limit_counts_what_it_misses(tmp_path: Path) -> None:
    """A file that takes the beginning of a write and no more is cut there, and one warning counts the rest exactly.

    https://github.com/mikopbx/Core/issues/1051
    """
    body = f"""
        logging.basicConfig(level=logging.WARNING)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_001, 100_001))
        async with start_processes("job", "seq", {{0: (1, 50_000)}}, log_dir="{tmp_path}", tee=Std.OUT) as context:
            assert not (await context.wait()).is_failed()
    """
    done = supervise(body)

    # Few enough for the console not to fall behind: it would read what it has missed from the file, and miss it, too.
    raw = b"".join(b"%d\n" % number for number in range(1, 50_001))
    (file,) = tmp_path.rglob("stdout.log")
    assert file.read_bytes() == raw[:100_001]
    assert re.findall(r"missed (\d+) bytes", done.stderr.decode()) == [str(len(raw) - 100_001)]
    assert done.stdout.replace(b"[job0]:", b"") == raw


def test_a_slow_console_over_a_full_device_loses_nothing(tmp_path: Path) -> None:
    """A console that is behind gets every line although the rank's file is a device that keeps none.

    https://github.com/mikopbx/Core/issues/1051
    """
    done = tmp_path / "done"
    prelude = """
        class Full(LogsSpecs):
            root_log_dir = None
            def reify(self, envs):
                return LogsDest({0: "/dev/full"}, {}, {0: "/dev/full"})
    """
    body = f"""
        logging.basicConfig(level=logging.WARNING)
        script = "seq 1 400000; touch {done}"
        async with start_processes("job", "sh", {{0: ("-c", script)}}, logs_specs=Full(), drain_timeout=30) as context:
            await context.wait()
    """
    with subprocess.Popen(supervisor(body, prelude), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        wait_until(done.exists, "the end of the rank")
        shown = job.stdout.read().decode()
        said = job.stderr.read().decode()

    assert shown == "".join(f"[job0]:{number}\n" for number in range(1, 400_001))
    assert len(re.findall("missed", said)) == 1


def test_a_slow_console_over_a_file_that_failed_gets_what_there_is(tmp_path: Path) -> None:
    """Of a file that failed a console that is behind gets what it has; what nobody has is counted, never made up.

    https://github.com/mikopbx/Core/issues/1051
    """
    done = tmp_path / "done"
    body = f"""
        logging.basicConfig(level=logging.WARNING)
        resource.setrlimit(resource.RLIMIT_FSIZE, (2_000_001, 2_000_001))
        script = "seq 1 400000; touch {done}"
        async with start_processes("job", "sh", {{0: ("-c", script)}}, log_dir="{tmp_path}", tee=Std.OUT,
                                   drain_timeout=30) as context:
            await context.wait()
    """
    with subprocess.Popen(supervisor(body), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        wait_until(done.exists, "the end of the rank")
        shown = job.stdout.read().replace(b"[job0]:", b"")
        said = job.stderr.read().decode()

    raw = b"".join(b"%d\n" % number for number in range(1, 400_001))
    assert re.findall(r"log file .* missed (\d+) bytes", said) == [str(len(raw) - 2_000_001)]
    (missed,) = re.findall(r"the console .* missed (\d+) bytes", said)
    kept = len(raw) - int(missed)
    assert 2_000_001 <= kept < len(raw)
    assert shown == raw[:kept] + (b"" if raw[:kept].endswith(b"\n") else b"\n")


async def test_a_console_that_raises_blocks_nobody(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A sink that raises in the middle is detached with one warning that has the count, and the rank finishes.

    https://github.com/Supervisor/supervisor/issues/240
    """

    class Fragile:
        taken = 0

        def write(self, text: str) -> None:
            self.taken += len(text)
            if self.taken > 500_000:
                self.taken -= len(text)
                raise RuntimeError("full")

    console = Fragile()
    monkeypatch.setattr(sys, "stdout", console)

    result = await run_shells("seq 1 200000", log_dir=tmp_path, tee=Std.OUT)

    assert not result.is_failed()
    raw = Path(result.stdouts[0]).read_bytes()
    shown = len(raw) + 200_000 * len("[job0]:")
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"failed (RuntimeError: full) and missed {shown - console.taken} bytes" in warning
