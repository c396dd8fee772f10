"""Where the output of real ranks arrives, for every way a stream can take."""

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import pytest

from aioelastic import LogsDest, Std
from tests.helpers.log_specs import Own
from tests.helpers.supervisors import run_pythons, run_shells, supervisor, wait_until

BOTH = "echo out; echo err >&2"
"""One line on each stream."""


def read(path: str | Path) -> str:
    """Give a file's text."""
    return Path(path).read_text()


async def test_an_inherited_stream_is_on_the_console_as_it_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Without redirects and tee the rank writes to the console itself, without a prefix and without a file."""
    result = await run_shells(BOTH, log_dir=tmp_path)

    assert capfd.readouterr() == ("out\n", "err\n")
    assert result.stdouts == result.stderrs == {0: ""}
    assert not list(tmp_path.rglob("*.log"))


async def test_a_redirected_stream_is_in_its_file_only(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Redirected output is in the file, byte for byte, and not on the console."""
    result = await run_shells(BOTH, BOTH, log_dir=tmp_path, redirects=Std.ALL)

    assert [read(result.stdouts[rank]) for rank in (0, 1)] == ["out\n", "out\n"]
    assert [read(result.stderrs[rank]) for rank in (0, 1)] == ["err\n", "err\n"]
    assert capfd.readouterr() == ("", "")


async def test_a_teed_stream_is_in_its_file_and_prefixed_on_the_console(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Teed output is in the file without a prefix, and on the console of the same stream behind one."""
    result = await run_shells(BOTH, log_dir=tmp_path, tee=Std.ALL)

    assert read(result.stdouts[0]) == "out\n"
    assert read(result.stderrs[0]) == "err\n"
    assert capfd.readouterr() == ("[job0]:out\n", "[job0]:err\n")


async def test_maps_choose_by_rank_and_stream(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Each rank and stream goes its own way, and one that no map names goes to the console."""
    result = await run_shells(
        BOTH, BOTH, BOTH, log_dir=tmp_path, redirects={0: Std.OUT, 1: Std.ALL}, tee={1: Std.ERR, 2: Std.OUT}
    )

    shown = capfd.readouterr()
    assert shown.out == "[job2]:out\n"
    assert sorted(shown.err.splitlines()) == ["[job1]:err", "err", "err"]
    assert [bool(path) for path in result.stdouts.values()] == [True, True, True]
    assert [bool(path) for path in result.stderrs.values()] == [False, True, False]


async def test_a_silenced_rank_is_not_on_the_console(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The filter of ranks keeps others off the console: teed streams go to files only, inherited ones nowhere."""
    result = await run_shells(BOTH, BOTH, log_dir=tmp_path, tee=Std.OUT, local_ranks_filter=[1])

    assert capfd.readouterr() == ("[job1]:out\n", "err\n")
    assert read(result.stdouts[0]) == read(result.stdouts[1]) == "out\n"


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"redirects": Std.OUT}, "stdout.log"),
        ({"tee": Std.OUT}, "pipe:"),
        ({"tee": Std.OUT, "local_ranks_filter": ()}, "stdout.log"),
        ({"local_ranks_filter": ()}, "/dev/null"),
        ({"log_dir": os.devnull, "redirects": Std.OUT}, "/dev/null"),
    ],
)
async def test_only_a_tee_is_in_the_way(tmp_path: Path, options: dict[str, Any], expected: str) -> None:
    """Where only a file wants the output, the rank's stdout is that file itself."""
    way = tmp_path / "way"
    program = f"import os; open({str(way)!r}, 'w').write(os.readlink('/proc/self/fd/1'))"

    await run_pythons(program, **{"log_dir": tmp_path, **options})

    assert expected in read(way)


async def test_a_filtered_copy_has_the_prefixed_lines_of_all_teed_ranks(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Lines with any of the entries are in one file per stream, whole, prefixed, and no others are."""
    script = "echo one loss; echo two; echo step 12; echo loss >&2; echo bad 7 >&2"
    result = await run_shells(
        script,
        script,
        script,
        log_dir=tmp_path,
        redirects=Std.ALL,
        tee={0: Std.ALL, 1: Std.ALL},
        duplicate_stdout_filters=["loss", re.compile(r"step \d+$")],
        duplicate_stderr_filters=["bad"],
    )

    attempt = Path(result.stdouts[0]).parents[1]
    filtered = read(attempt / "filtered_stdout.log").splitlines()
    assert sorted(filtered) == [f"[job{rank}]:{text}" for rank in (0, 1) for text in ("one loss", "step 12")]
    assert sorted(read(attempt / "filtered_stderr.log").splitlines()) == ["[job0]:bad 7", "[job1]:bad 7"]
    assert len(capfd.readouterr().out.splitlines()) == 6


async def test_a_silenced_rank_is_in_the_filtered_copy(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The filter of ranks is about the console: the filtered copy has the teed lines of the others, too."""
    result = await run_shells(
        "echo loss", log_dir=tmp_path, tee=Std.OUT, local_ranks_filter=(), duplicate_stdout_filters=["loss"]
    )

    assert read(Path(result.stdouts[0]).parents[1] / "filtered_stdout.log") == "[job0]:loss\n"
    assert read(result.stdouts[0]) == "loss\n"
    assert capfd.readouterr() == ("", "")


async def test_an_entry_may_match_the_prefix_and_a_last_line_needs_no_end(tmp_path: Path) -> None:
    """Entries are looked for in the prefixed line, and a line that the end of the stream ends is a line."""
    result = await run_shells(
        "printf here", "printf there", log_dir=tmp_path, tee=Std.OUT, duplicate_stdout_filters=["b1]:th", "x"]
    )

    assert read(Path(result.stdouts[0]).parents[1] / "filtered_stdout.log") == "[job1]:there\n"


async def test_a_custom_specification_decides(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The paths of a user's own LogsSpecs are used as they are, for files, tees and filtered copies."""
    out, err, filtered = (str(tmp_path / name) for name in ("my.out", "my.err", "my.filtered"))
    specs = Own(LogsDest({0: out}, {0: err}, {}, {0: err}, filtered_stderr=filtered))

    result = await run_shells(BOTH, logs_specs=specs, duplicate_stderr_filters=["err"])

    assert (read(out), read(err), read(filtered)) == ("out\n", "err\n", "[job0]:err\n")
    assert (result.stdouts, result.stderrs) == ({0: out}, {0: err})
    assert capfd.readouterr() == ("", "[job0]:err\n")


async def test_an_existing_file_is_continued(tmp_path: Path) -> None:
    """A file that a specification names again is appended to, never emptied, whichever way leads there."""
    redirected, teed = tmp_path / "redirected", tmp_path / "teed"
    specs = Own(LogsDest({0: str(redirected)}, {0: str(teed)}, {}, {0: str(teed)}))

    for _ in range(2):
        await run_shells(BOTH, logs_specs=specs)

    assert redirected.read_text() == "out\nout\n"
    assert teed.read_text() == "err\nerr\n"


async def test_a_file_in_an_unusable_place_stops_the_start(tmp_path: Path) -> None:
    """If one file of a group cannot be opened, the start fails with its path, and leaves nothing open."""
    out, missing = str(tmp_path / "out"), str(tmp_path / "missing" / "filtered")
    dest = LogsDest({0: out}, {0: out}, {0: out}, {0: out}, filtered_stdout=out + ".f", filtered_stderr=missing)

    with pytest.raises(FileNotFoundError, match=re.escape(missing)):
        await run_shells(BOTH, logs_specs=Own(dest), duplicate_stdout_filters=["x"], duplicate_stderr_filters=["x"])


async def test_two_streams_may_share_one_file(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Where a rank's streams are teed into the same file it has the bytes of both, and each console its own."""
    both = str(tmp_path / "both")
    dest = LogsDest({0: both}, {0: both}, {0: both}, {0: both})
    program = "import os\nfor n in range(2000): os.write(1, b'out %d\\n' % n); os.write(2, b'err %d\\n' % n)"

    await run_pythons(program, logs_specs=Own(dest))

    lines = read(both).splitlines()
    shown = capfd.readouterr()
    for name, console in (("out", shown.out), ("err", shown.err)):
        expected = [f"{name} {number}" for number in range(2000)]
        assert [line for line in lines if line.startswith(name)] == expected
        assert console.splitlines() == [f"[job0]:{line}" for line in expected]


async def test_devnull_means_no_files_at_all(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With log_dir=os.devnull redirected output is dropped, teed output is printed, and no file has a name."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    probe = f"ls {tmp_path}"

    result = await run_shells(
        f"{probe}; {BOTH}", log_dir=os.devnull, redirects=Std.ERR, tee=Std.OUT, duplicate_stdout_filters=["out"]
    )

    assert capfd.readouterr() == ("[job0]:out\n", "")
    assert not list(tmp_path.iterdir())
    assert not Path(result.stdouts[0]).is_file()


def test_devnull_works_with_a_console_that_is_slow(tmp_path: Path) -> None:
    """Without files, what a slow console has not taken is kept in a nameless one: every line comes, once, in order."""
    done = tmp_path / "done"
    body = f"""
        script = "seq 1 1500000; touch {done}"
        async with start_processes("job", "sh", {{0: ("-c", script)}}, log_dir=os.devnull, tee=Std.OUT,
                                   drain_timeout=50) as context:
            await context.wait()
    """
    with subprocess.Popen(supervisor(body), stdout=subprocess.PIPE, env={**os.environ, "TMPDIR": str(tmp_path)}) as job:
        assert job.stdout is not None
        wait_until(done.exists, "the end of the rank")
        assert not [path for path in tmp_path.iterdir() if path != done]
        lines = job.stdout.read().splitlines()

    assert job.returncode == 0
    assert lines == [b"[job0]:%d" % number for number in range(1, 1_500_001)]
