"""The console, whatever it is: what a person sees of several ranks at once."""

import asyncio
import io
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import TextIO

import pytest

from aioelastic import Std
from aioelastic._base.threads import Mailbox
from aioelastic._logs.consoles import acquire_console
from tests.helpers.programs import shells
from tests.helpers.supervisors import run_shells, supervise, supervisor, wait_until
from tests.helpers.waiting import until

TEE = (
    'async with start_processes("job", "sh", {scripts}, log_dir="{folder}", tee=Std.ALL) as context: '
    "await context.wait()"
)
"""A supervisor's whole work."""


def tee(folder: Path, *scripts: str) -> str:
    """Give a supervisor's body that tees scripts."""
    return TEE.format(scripts=shells(*scripts), folder=folder)


class OnlyWrite:
    """The least a console can be."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> None:
        """Keep the text."""
        self.text += text


async def test_capsys_gets_the_lines(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """An object in the place of sys.stdout is written as the object it is: pytest's capsys has the lines."""
    await run_shells("echo out; echo err >&2; printf '\\344\\366 \\303\\244\\n'", log_dir=tmp_path, tee=Std.ALL)

    assert capsys.readouterr() == ("[job0]:out\n[job0]:\\xe4\\xf6 ä\n", "[job0]:err\n")


async def test_only_a_write_method_is_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A console may be an object with nothing but write()."""
    console = OnlyWrite()
    monkeypatch.setattr(sys, "stdout", console)

    await run_shells("echo a; echo b", log_dir=tmp_path, tee=Std.OUT)

    assert console.text == "[job0]:a\n[job0]:b\n"


async def test_what_an_encoding_lacks_is_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Characters that the console's encoding lacks are escaped, the others are not, and nothing fails."""

    class Latin(OnlyWrite):
        encoding = "latin-1"

        def write(self, text: str) -> None:
            text.encode(self.encoding)
            super().write(text)

    console = Latin()
    monkeypatch.setattr(sys, "stdout", console)

    await run_shells("echo 'ä €'", log_dir=tmp_path, tee=Std.OUT)

    assert console.text == "[job0]:ä \\u20ac\n"


class Giver:
    """Somebody who writes, and never asks how far that has come."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()

    def written(self, count: int) -> None:
        """Be told."""


@pytest.mark.parametrize("end", [b"\n", b"\r"])
async def test_the_end_of_a_line_that_was_interrupted_makes_no_empty_one(
    end: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a prompt or a state of a progress bar that another line has ended, the own end or return shows nothing."""
    shown = OnlyWrite()
    monkeypatch.setattr(sys, "stdout", shown)
    console = acquire_console("stdout")
    assert console is not None
    one, other = Giver(), Giver()
    console.show(one, b"1:10%", prefix=b"1:", continues=False)
    console.show(other, b"2:line\n", prefix=b"2:", continues=False)
    nothing = console.show(one, b"1:" + end, prefix=b"1:", continues=True)
    console.show(one, b"1:20%\n", prefix=b"1:", continues=False)
    await console.release()

    assert nothing == 0
    assert shown.text == "1:10%\n2:line\n1:20%\n"


@pytest.mark.parametrize("error", [ValueError("broken console"), KeyboardInterrupt(), SystemExit(1), OSError(5, "EIO")])
async def test_a_console_that_raises_is_detached(
    error: BaseException, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Whatever a console raises, the rank and its file are whole, and one warning says how much was missed."""

    class Raising(OnlyWrite):
        def write(self, text: str) -> None:
            del text
            raise error

    monkeypatch.setattr(sys, "stdout", Raising())

    result = await run_shells("seq 1 1000", log_dir=tmp_path, tee=Std.OUT)

    assert not result.is_failed()
    size = len(Path(result.stdouts[0]).read_bytes())
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert f"missed {size + 1000 * len('[job0]:')} bytes" in warning
    assert "stdout: Raising" in warning


async def test_a_console_that_blocks_holds_up_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A write() that does not return delays neither loop nor file, the result by drain_timeout, and is warned of."""
    released = threading.Event()

    class Blocking(OnlyWrite):
        def write(self, text: str) -> None:
            released.wait()
            super().write(text)

    console = Blocking()
    monkeypatch.setattr(sys, "stdout", console)
    loop = asyncio.get_running_loop()
    try:
        begin = loop.time()
        result = await run_shells("seq 1 100000", log_dir=tmp_path, tee=Std.OUT, drain_timeout=0.5)
        seconds = loop.time() - begin

        assert seconds < 2.5
        assert len(Path(result.stdouts[0]).read_bytes()) == 588_895
        (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
        assert re.search(r"was too slow and missed \d{6,} bytes", warning)
    finally:
        released.set()
    await until(lambda: "[job0]:1\n" in console.text, "what was on its way")
    assert len([record for record in caplog.records if record.levelname == "WARNING"]) == 1


@pytest.mark.parametrize("kind", ["None", "closed", "detached"])
async def test_without_a_console_the_files_are_written(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Where there is no console (a daemon) teed output is in its file, and nothing is warned of."""
    stream: TextIO | None = io.TextIOWrapper(io.BytesIO()) if kind != "None" else None
    if kind == "closed" and stream is not None:
        stream.close()
    elif kind == "detached" and isinstance(stream, io.TextIOWrapper):
        stream.detach()
    monkeypatch.setattr(sys, "stdout", stream)

    result = await run_shells("echo here", log_dir=tmp_path, tee=Std.OUT)

    assert Path(result.stdouts[0]).read_text() == "here\n"
    assert not caplog.records


async def test_own_prefixes_are_used(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A rank's own prefix, an empty one too, stands in the place of the default one."""
    await run_shells(
        "echo a", "echo b", "echo c", log_dir=tmp_path, tee=Std.OUT, log_line_prefixes={0: "", 1: "<näme> ", 2: "x\ty "}
    )

    assert sorted(capfd.readouterr().out.splitlines()) == ["<näme> b", "a", "x\ty c"]


def test_lines_of_ranks_and_streams_are_never_mixed(tmp_path: Path) -> None:
    """With stdout and stderr on one pipe, long lines of 8 ranks on both streams arrive whole, once, and in order."""
    program = (
        "import os\nfor n in range(60):\n for fd in (1, 2): os.write(fd, b'%d.%d ' % (fd, n) + b'x' * 9000 + b'\\n')"
    )
    args = dict.fromkeys(range(8), ("-c", program))
    body = f"""
        async with start_processes("job", sys.executable, {args}, log_dir="{tmp_path}", tee=Std.ALL) as context:
            await context.wait()
    """
    done = supervise(body, stderr=subprocess.STDOUT)

    lines = done.stdout.decode().splitlines()
    assert all(re.fullmatch(r"\[job\d\]:[12]\.\d+ x{9000}", line) for line in lines)
    for rank in range(8):
        for fd in (1, 2):
            start = f"[job{rank}]:{fd}."
            numbers = [int(line[len(start) :].split()[0]) for line in lines if line.startswith(start)]
            assert numbers == list(range(60))


def test_groups_and_loops_share_one_console(tmp_path: Path) -> None:
    """Groups in event loops of different threads write whole lines to the one console."""
    body = f"""
        import threading
        async def group(name):
            script = "for n in $(seq 300); do echo $n {"y" * 5000}; done"
            async with start_processes(name, "sh", {{0: ("-c", script)}}, log_dir="{tmp_path}/" + name,
                                       tee=Std.OUT) as context:
                await context.wait()
        threads = [threading.Thread(target=asyncio.run, args=(group(name),)) for name in "ab"]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
    """
    done = supervise(body)

    lines = done.stdout.decode().splitlines()
    for name in "ab":
        own = [line for line in lines if line.startswith(f"[{name}0]:")]
        assert own == [f"[{name}0]:{number} {'y' * 5000}" for number in range(1, 301)]
    assert len(lines) == 600


async def test_a_loop_that_is_held_up_does_not_hold_up_the_console(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lines of one event loop are shown although another one has put some and is busy before these are on their way."""
    shown = OnlyWrite()
    monkeypatch.setattr(sys, "stdout", shown)
    console = acquire_console("stdout")
    assert console is not None
    put, go_on = threading.Event(), threading.Event()

    async def be_held_up() -> None:
        console.show(Giver(), b"one\n", prefix=b"", continues=False)
        put.set()
        go_on.wait(20)

    other = threading.Thread(target=asyncio.run, args=(be_held_up(),))
    other.start()
    await until(put.is_set)
    console.show(Giver(), b"other\n", prefix=b"", continues=False)
    await until(lambda: shown.text == "one\nother\n")
    go_on.set()
    other.join()
    await console.release()


def test_a_programs_own_prints_come_before(tmp_path: Path) -> None:
    """What the program printed and did not flush stands before what a rank printed later, on either stream."""
    body = f"""
        print("before")
        print("also", end=" ", file=sys.stderr)
        {tee(tmp_path, "echo err >&2")}
        print("between")
        {tee(tmp_path, "echo out")}
    """
    done = supervise(body, stderr=subprocess.STDOUT)

    assert done.stdout.decode() == "before\nalso [job0]:err\nbetween\n[job0]:out\n"


def test_prints_of_both_streams_come_before_while_they_share_a_console(tmp_path: Path) -> None:
    """A console first used for stderr flushes stdout too, once a group tees to it."""
    sign = tmp_path / "sign"
    body = f"""
        script = "while ! test -e {sign}; do sleep 0.01; done"
        async with start_processes("held", "sh", {{0: ("-c", script)}}, log_dir="{tmp_path}/a", tee=Std.ERR):
            print("before")
            {tee(tmp_path / "b", "echo out")}
            Path("{sign}").touch()
    """
    done = supervise(body, stderr=subprocess.STDOUT)

    assert done.stdout.decode() == "before\n[job0]:out\n"


def test_the_console_is_never_made_non_blocking(tmp_path: Path) -> None:
    """The flags of a console's descriptors are the same before, during and after."""
    body = f"""
        import fcntl
        flags = lambda: [fcntl.fcntl(fd, fcntl.F_GETFL) for fd in (0, 1, 2)]
        before = flags()
        script = "echo up; while ! test -e {tmp_path}/go; do sleep 0.01; done"
        async with start_processes("job", "sh", {{0: ("-c", script)}}, log_dir="{tmp_path}", tee=Std.ALL) as context:
            during = flags()
            Path("{tmp_path}/go").touch()
            await context.wait()
        print(before == during == flags(), before[1] & os.O_NONBLOCK)
    """
    assert supervise(body).stdout.endswith(b"True 0\n")


def test_a_non_blocking_console_loses_nothing(tmp_path: Path) -> None:
    """A console that somebody else has made non-blocking gets every line, although nobody reads for a while."""
    with subprocess.Popen(
        supervisor("os.set_blocking(1, False)\n" + tee(tmp_path, f"seq 1 200000; touch {tmp_path}/done")),
        stdout=subprocess.PIPE,
    ) as job:
        assert job.stdout is not None
        wait_until((tmp_path / "done").exists)
        lines = job.stdout.read().splitlines()

    assert lines == [b"[job0]:%d" % number for number in range(1, 200_001)]


async def test_a_console_that_is_asked_for_while_it_ends_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asks between the end of its outlet and that of its thread gets another one; both threads end."""
    with (tmp_path / "console").open("w") as file:
        monkeypatch.setattr(sys, "stdout", file)
        before = threading.enumerate()
        first = acquire_console("stdout")
        assert first is not None
        closed, go_on = threading.Event(), threading.Event()
        forget = first._forget_unused

        def forget_late() -> None:
            closed.set()
            go_on.wait(20)
            forget()

        monkeypatch.setattr(first, "_forget_unused", forget_late)
        releasing = asyncio.create_task(first.release())
        await until(closed.is_set)
        second = acquire_console("stdout")
        assert second is not None
        assert second is not first
        go_on.set()
        await releasing
        await second.release()
        await until(lambda: threading.enumerate() == before)
