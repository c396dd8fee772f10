"""Sinks that are slow, stuck or broken: ranks, files and results go on, and what was missed is said once."""

import asyncio
import contextlib
import os
import re
import shutil
import signal
import subprocess
from pathlib import Path

import pytest

from aioelastic import LogsDest, Std, start_processes
from tests.helpers.log_specs import Own
from tests.helpers.programs import shells
from tests.helpers.supervisors import run_shells, supervisor, wait_until
from tests.helpers.waiting import until_written

LINES = 300_000
NUMBERS = "".join(f"{number}\n" for number in range(1, LINES + 1)).encode()
SHOWN = NUMBERS.replace(b"\n", b"\n[job0]:").removesuffix(b"[job0]:").join([b"[job0]:", b""])


def teed(path: str, filtered: str = "") -> Own:
    """Tee rank 0's stdout into a file."""
    return Own(LogsDest({0: path}, {}, {0: path}, filtered_stdout=filtered))


def warnings_in(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Give the warnings so far."""
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def timed(scripts: dict[int, tuple[str, str]], folder: Path, drain_timeout: float, groups: int = 1) -> str:
    """Give a supervisor's body that says, on stderr, after how long each group has its result."""
    return f"""
        logging.basicConfig(level=logging.WARNING)
        for number in range({groups}):
            begin = time.monotonic()
            async with start_processes("job", "sh", {scripts}, log_dir="{folder}", tee=Std.OUT,
                                       drain_timeout={drain_timeout}) as context:
                result = await context.wait()
                print("result", round(time.monotonic() - begin, 2), result.is_failed(), file=sys.stderr, flush=True)
        import threading
        print("threads", threading.active_count(), file=sys.stderr, flush=True)
        os._exit(0)
    """


def test_a_stuck_console_holds_up_nothing(tmp_path: Path) -> None:
    """With a console that nobody reads, ranks finish, files are whole, wait() is bounded, one warning has the count."""
    scripts = shells(f"seq 1 {LINES}", f"seq 1 {LINES}")
    with subprocess.Popen(
        supervisor(timed(scripts, tmp_path, 0.5)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as job:
        assert job.stderr is not None
        assert job.stdout is not None
        said = job.stderr.read().decode()
        shown = job.stdout.read()

    assert [path.read_bytes() for path in tmp_path.rglob("stdout.log")] == [NUMBERS, NUMBERS]
    (seconds,) = re.findall(r"result (\S+) False", said)
    assert float(seconds) < 3
    (count,) = re.findall(r"too slow and missed (\d+) bytes", said)
    # Of what lies before the console each byte counts, of the rest the raw ones: each was shown or counted.
    everything = 2 * len(NUMBERS)
    assert everything <= len(shown) + int(count) <= 2 * len(SHOWN)
    assert shown.startswith((b"[job0]:1\n[job0]:2\n", b"[job1]:1\n[job1]:2\n"))


def test_a_warning_does_not_wait_for_the_console_it_is_about(tmp_path: Path) -> None:
    """Where logging goes to the stuck console itself, the warning is stuck there, and the result comes all the same."""
    prelude = f"said = open('{tmp_path}/said', 'a')"
    body = timed(shells(f"seq 1 {LINES}"), tmp_path, 0.3).replace("file=sys.stderr", "file=said")
    with subprocess.Popen(supervisor(body, prelude), stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as job:
        assert job.stdout is not None
        assert job.wait(30) == 0
        job.stdout.read()

    (seconds,) = re.findall(r"result (\S+) False", (tmp_path / "said").read_text())
    assert float(seconds) < 3


def test_a_stuck_console_is_in_one_hand_for_the_next_group(tmp_path: Path) -> None:
    """Groups after the one that found the console stuck share its one thread: when somebody reads, lines are whole."""
    scripts = shells(f"seq 1 {LINES}")
    body = timed(scripts, tmp_path, 0.2, groups=3)
    with subprocess.Popen(supervisor(body), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as job:
        assert job.stderr is not None
        assert job.stdout is not None
        said = job.stderr.read().decode()
        shown = job.stdout.read().decode()

    assert len(re.findall(r"result \S+ False", said)) == 3
    assert len(re.findall("too slow and missed", said)) == 3
    assert "threads 2" in said
    assert all(re.fullmatch(r"\[job0\]:\d+", line) for line in shown.splitlines()[:-1])


def test_a_slow_console_catches_up_from_the_file(tmp_path: Path) -> None:
    """A console that is read only after the rank's end gets every line, once, in order, out of the rank's file."""
    done = tmp_path / "done"
    with subprocess.Popen(
        supervisor(timed(shells(f"seq 1 {LINES}; touch {done}"), tmp_path, 50)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        wait_until(done.exists, "the end of the rank")
        shown = job.stdout.read()
        said = job.stderr.read().decode()

    assert shown == SHOWN
    assert "missed" not in said


def test_a_reader_that_goes_away_is_a_warning(tmp_path: Path) -> None:
    """Once the console's reader is gone the rank ends as usual, its file is whole, and one warning has the count."""
    scripts = shells(f"echo up; while ! test -e {tmp_path}/go; do sleep 0.01; done; seq 1 {LINES}")
    with subprocess.Popen(
        supervisor(timed(scripts, tmp_path, 5)), stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as job:
        assert job.stdout is not None
        assert job.stderr is not None
        assert job.stdout.readline() == b"[job0]:up\n"
        job.stdout.close()
        (tmp_path / "go").touch()
        said = job.stderr.read().decode()

    (file,) = tmp_path.rglob("stdout.log")
    assert file.read_bytes() == b"up\n" + NUMBERS
    assert re.findall(r"missed (\d+) bytes", said) == [str(len(SHOWN))]
    assert "Broken pipe" in said
    assert re.search(r"result \S+ False", said)


async def test_a_full_disk_under_the_file(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]) -> None:
    """With a full disk the rank ends as usual, one warning counts every byte, and the console has every line."""
    result = await run_shells(f"seq 1 {LINES}", logs_specs=teed("/dev/full"), drain_timeout=30)

    assert not result.is_failed()
    (warning,) = warnings_in(caplog)
    assert (
        f"log file '/dev/full' failed ([Errno 28] No space left on device) and missed {len(NUMBERS)} bytes" in warning
    )
    assert capfd.readouterr().out.encode() == SHOWN


async def test_a_full_disk_under_the_filtered_copy(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """With a full disk under the filtered copy only that is incomplete, and says by how much."""
    specs = teed(str(tmp_path / "log"), "/dev/full")

    result = await run_shells("seq 1 1000", logs_specs=specs, duplicate_stdout_filters=["7"])

    size = sum(len(f"[job0]:{number}\n") for number in range(1, 1001) if "7" in str(number))
    (warning,) = warnings_in(caplog)
    assert f"filtered copy '/dev/full' failed ([Errno 28] No space left on device) and missed {size} bytes" in warning
    assert (tmp_path / "log").read_text() == "".join(f"{number}\n" for number in range(1, 1001))
    assert len(capfd.readouterr().out.splitlines()) == 1000
    assert not result.is_failed()


async def test_a_file_that_nobody_reads(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """A log file that is a FIFO without a reader gets stuck without taking console or result with it."""
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    loop = asyncio.get_running_loop()
    begin = loop.time()

    # More than a pipe holds, and less than what a pump keeps in memory for a file that is slow.
    result = await run_shells("seq 1 40000", logs_specs=teed(str(fifo)), drain_timeout=0.3)
    seconds = loop.time() - begin
    with fifo.open("rb") as reader:  # sets the thread free that is stuck, which then closes the other end
        reader.read()

    assert not result.is_failed()
    assert seconds < 3.5
    assert len(capfd.readouterr().out.splitlines()) == 40_000
    (warning,) = warnings_in(caplog)
    assert "too slow" in warning


async def test_a_log_directory_that_is_removed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """When the log directory goes while a rank runs, it ends as usual and the console has every line."""
    logs = tmp_path / "logs"
    script = f"echo up; while ! test -e {tmp_path}/go; do sleep 0.01; done; seq 1 {LINES}"
    async with start_processes("job", "sh", shells(script), log_dir=logs, tee=Std.OUT) as context:
        await until_written(context.stdouts[0], "up\n")
        shutil.rmtree(logs)
        (tmp_path / "go").touch()
        result = await context.wait(timeout=30)

    assert result is not None
    assert not result.is_failed()
    assert capfd.readouterr().out.encode() == b"[job0]:up\n" + SHOWN
    assert not logs.exists()


async def test_a_grandchild_that_holds_the_pipe_is_bounded(tmp_path: Path) -> None:
    """A process that left the group with the pipe delays the result by drain_timeout; what it wrote is kept."""
    daemon = "setsid sh -c 'echo from the daemon; echo up >{0}/up; exec sleep 60' & echo $! >{0}/pid; {1}"
    wait = f"while ! test -e {tmp_path}/up; do sleep 0.01; done; printf end"
    loop = asyncio.get_running_loop()
    begin = loop.time()
    async with start_processes(
        "job", "sh", shells(daemon.format(tmp_path, wait)), log_dir=tmp_path, tee=Std.OUT, drain_timeout=0.5
    ) as context:
        result = await context.wait(timeout=30)
        seconds = loop.time() - begin
    with contextlib.suppress(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)

    assert result is not None
    assert not result.is_failed()
    assert seconds < 3
    assert Path(result.stdouts[0]).read_text() == "from the daemon\nend"


async def test_many_slow_streams_and_a_failing_one(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A rank whose file is broken costs the other ranks nothing: their files and lines are whole."""
    good = [str(tmp_path / f"{rank}") for rank in range(4)]
    paths = dict(enumerate([*good, "/dev/full"]))

    await run_shells(*[f"seq 1 {LINES}"] * 5, logs_specs=Own(LogsDest(paths, {}, paths)), drain_timeout=30)

    assert all(Path(path).read_bytes() == NUMBERS for path in good)
    shown: dict[str, list[str]] = {f"[job{rank}]": [] for rank in range(5)}
    for line in capfd.readouterr().out.splitlines():
        prefix, _, rest = line.partition(":")
        shown[prefix].append(rest)
    assert all("\n".join([*own, ""]).encode() == NUMBERS for own in shown.values())
