"""What a pump owes the rank's file: every byte, exactly, to the last one, in bounded memory."""

import hashlib
import os
import subprocess
from pathlib import Path

import pytest

from aioelastic import Std
from aioelastic._logs import moves
from aioelastic._logs.files import keep_appending
from tests.helpers.supervisors import run_pythons, run_shells, supervise

WRITE = "import os, sys\ndata = {data}\nwhile data: data = data[os.write(1, data):]"
"""Writes an expression's bytes to stdout, however much the pipe takes at once."""

NO_SPLICE = "from aioelastic._logs import moves; moves.stop_appending = moves.keep_appending"
"""Has the kernel refuse to splice into log files, as some file systems do: they go on appending."""


@pytest.fixture(autouse=True, params=["spliced", "copied"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Run every test with both ways into a file; give the prelude that makes a supervisor take the same one."""
    if request.param == "spliced":
        return ""
    monkeypatch.setattr(moves, "stop_appending", keep_appending)
    return NO_SPLICE


AWKWARD = {
    "nothing": "b''",
    "one NUL": "b'\\0'",
    "NULs between lines": "b'\\0a\\n\\0\\0\\n' * 1000",
    "every byte": "bytes(range(256)) * 600",
    "invalid UTF-8": "b'\\xff\\xc3(\\xe2\\x82\\n\\xed\\xa0\\x80' * 5000",
    "no end": "b'begun'",
    "a long line without an end": "b'x' * 300_000",
    "carriage returns": "b'10%\\r20%\\r\\r\\n\\r' * 4000",
    "empty lines": "b'\\n' * 100_000",
    "no line in a chunk": "b'y' * 65_536 + b'\\n' + b'z' * 65_535 + b'\\n'",
    "escapes": "b'\\x1b[31mred\\x1b]0;title\\x07\\n\\x1b' * 999",
}


@pytest.mark.parametrize("expression", AWKWARD.values(), ids=AWKWARD)
@pytest.mark.half
async def test_the_file_has_every_byte(expression: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The rank's file is what the rank wrote, whatever it is, and whatever the console makes of it."""
    result = await run_pythons(
        WRITE.format(data=expression), log_dir=tmp_path, tee=Std.OUT, duplicate_stdout_filters=["red", "y"]
    )

    assert Path(result.stdouts[0]).read_bytes() == eval(expression)
    assert not result.is_failed()


@pytest.mark.half
async def test_a_huge_line_is_whole_in_the_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """A line of 20 MB is in the file in one piece, and on the console in marked ones with nothing lost."""
    size = 20_000_000
    result = await run_shells(f"head -c {size} /dev/zero | tr '\\0' x; echo", log_dir=tmp_path, tee=Std.OUT)

    with Path(result.stdouts[0]).open("rb") as file:
        digest = hashlib.file_digest(file, "sha256")
    assert digest.hexdigest() == hashlib.sha256(b"x" * size + b"\n").hexdigest()
    pieces = capfd.readouterr().out.splitlines()
    assert all(piece.startswith("[job0]:x") and len(piece) < 70_000 for piece in pieces)
    assert all(piece.endswith(" [cut by aioelastic]") for piece in pieces[:-1])
    assert sum(piece.count("x") for piece in pieces) == size


@pytest.mark.half
async def test_many_short_lived_ranks_all_have_their_last_line(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Each of 50 ranks that print and exit at once has its lines, to the last, in its file and on the console."""
    scripts = [f"echo first of {rank}; printf 'last of {rank}'" for rank in range(50)]

    result = await run_shells(*scripts, log_dir=tmp_path, tee=Std.OUT)

    for rank, path in result.stdouts.items():
        assert Path(path).read_text() == f"first of {rank}\nlast of {rank}"
    expected = [f"[job{rank}]:{which} of {rank}" for rank in range(50) for which in ("first", "last")]
    assert sorted(capfd.readouterr().out.splitlines()) == sorted(expected)


async def test_what_a_killed_rank_wrote_is_kept(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """What was written before a SIGKILL is there, in the middle of a line too, on both streams."""
    result = await run_shells("echo one; printf half; printf e >&2; kill -9 $$", log_dir=tmp_path, tee=Std.ALL)

    assert Path(result.stdouts[0]).read_text() == "one\nhalf"
    assert Path(result.stderrs[0]).read_text() == "e"
    assert capfd.readouterr() == ("[job0]:one\n[job0]:half\n", "[job0]:e\n")


async def test_files_are_whole_when_the_first_failure_ends_the_group(tmp_path: Path) -> None:
    """A rank that is stopped because another one failed has its farewell in its file."""
    waits = "trap 'echo bye; exit 0' TERM; echo ready >{0}/ready; while :; do sleep 0.01; done"
    fails = "while ! test -e {0}/ready; do sleep 0.01; done; echo fails; exit 3"

    result = await run_shells(*(each.format(tmp_path) for each in (waits, fails)), log_dir=tmp_path, tee=Std.OUT)

    assert [Path(path).read_text() for path in result.stdouts.values()] == ["bye\n", "fails\n"]
    assert {rank: failure.exitcode for rank, failure in result.failures.items()} == {1: 3}


async def test_a_rank_may_close_its_stream_early(tmp_path: Path) -> None:
    """A stream that the rank closes long before it exits ends by itself, and the other one goes on."""
    result = await run_shells("echo out; exec >&-; echo err >&2", log_dir=tmp_path, tee=Std.ALL)

    assert Path(result.stdouts[0]).read_text() == "out\n"
    assert Path(result.stderrs[0]).read_text() == "err\n"


async def test_without_time_to_drain_what_is_in_the_pipe_is_taken(tmp_path: Path) -> None:
    """With drain_timeout=0 the file still has all that the rank wrote before it exited."""
    result = await run_shells("seq 1 20000; printf end", log_dir=tmp_path, tee=Std.OUT, drain_timeout=0)

    assert Path(result.stdouts[0]).read_text() == "".join(f"{number}\n" for number in range(1, 20_001)) + "end"


@pytest.mark.one_of("way")
@pytest.mark.parametrize("console", ["a reader", "nobody for a while"])
@pytest.mark.half
def test_memory_is_bounded(tmp_path: Path, console: str, way: str) -> None:
    """A line of 40 MB does not make the supervisor grow, with a fast console and with one that is behind."""
    shell = "head -c 40000000 /dev/zero | tr '\\0' x; touch " + str(tmp_path / "done")
    body = f"""
        def peak():
            return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        async with start_processes("warm", "echo", {{0: "up"}}, log_dir="{tmp_path}", tee=Std.OUT) as context:
            await context.wait()
        before = peak()
        async with start_processes("job", "sh", {{0: ("-c", {shell!r})}}, log_dir="{tmp_path}", tee=Std.OUT,
                                   duplicate_stdout_filters=["y"], drain_timeout=40) as context:
            result = await context.wait()
        size = os.path.getsize(result.stdouts[0])
        print("growth", int(peak() - before), "size", size, file=sys.stderr)
    """
    # The shell before the reader holds it back until the rank is done.
    wait = f"while ! test -e {tmp_path}/done; do sleep 0.01; done; " if console != "a reader" else ""
    reading, writing = os.pipe()
    with os.fdopen(reading), os.fdopen(writing, "w") as pipe:
        reader = subprocess.Popen(["sh", "-c", f"{wait}tr -cd x | wc -c"], stdin=reading, stdout=subprocess.PIPE)
        done = supervise(body, way, stdout=pipe)
        pipe.close()
        shown, _ = reader.communicate(timeout=60)

    words = done.stderr.split()
    assert words[0::2] == [b"growth", b"size"], done.stderr
    assert int(words[3]) == 40_000_000
    assert int(words[1]) < 30
    assert int(shown) == 40_000_000
