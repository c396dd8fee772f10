"""Where the output of function ranks arrives, whoever writes it and however the rank ends."""

import os
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from aioelastic import Std
from tests.helpers import function_worlds as worlds
from tests.helpers.drivers import LOOPS, driver_command, driver_environment, run_driver
from tests.helpers.function_groups import FORK_WARNING, METHODS, run_functions

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.one_method, pytest.mark.half]

each_method = pytest.mark.parametrize("method", METHODS)
each_loop = pytest.mark.parametrize("loop", LOOPS)
each_way = pytest.mark.parametrize("way", ["redirects", "tee"])

WORLDS = "from tests.helpers import function_worlds as worlds\n"
"""Begins a driver that runs functions of that module."""


def _read(path: str) -> str:
    return Path(path).read_text()


@each_method
async def test_redirected_output_is_in_its_files_only(
    method: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What is printed to either stream is in the rank's file and not on the console."""
    result = await run_functions(method, worlds.print_both, ("a",), ("b",), log_dir=tmp_path, redirects=Std.ALL)

    assert [_read(result.stdouts[rank]) for rank in (0, 1)] == ["a\n", "b\n"]
    assert [_read(result.stderrs[rank]) for rank in (0, 1)] == ["a\n", "b\n"]
    assert capfd.readouterr() == ("", "")


@each_method
async def test_teed_output_is_prefixed_on_the_console(
    method: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """Teed output is in the file as it is, and on the console of the same stream behind the rank's prefix."""
    result = await run_functions(method, worlds.print_both, ("a",), ("b",), log_dir=tmp_path, tee=Std.ALL)

    assert [_read(result.stdouts[rank]) + _read(result.stderrs[rank]) for rank in (0, 1)] == ["a\na\n", "b\nb\n"]
    shown = capfd.readouterr()
    assert sorted(shown.out.splitlines()) == sorted(shown.err.splitlines()) == ["[job0]:a", "[job1]:b"]


@each_method
async def test_inherited_output_is_on_the_console(method: str, capfd: pytest.CaptureFixture[str]) -> None:
    """Without redirects and tee a rank prints to the supervisor's own stdout and stderr."""
    await run_functions(method, worlds.print_both, ("here",))

    assert capfd.readouterr() == ("here\n", "here\n")


@each_method
async def test_filtered_copy(method: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Lines of teed ranks that a filter asks for are copied, prefixed, into one file."""
    result = await run_functions(
        method,
        worlds.print_both,
        ("loss 1\nno",),
        ("no\nloss 2",),
        log_dir=tmp_path,
        tee=Std.OUT,
        redirects=Std.ERR,
        duplicate_stdout_filters=["loss"],
    )

    filtered = _read(str(Path(result.stdouts[0]).parents[1] / "filtered_stdout.log"))
    assert sorted(filtered.splitlines()) == ["[job0]:loss 1", "[job1]:loss 2"]


@each_method
@pytest.mark.parametrize("teed", [False, True])
async def test_silenced_ranks(method: str, teed: bool, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """The filter of ranks keeps others off the console, inherited or teed; files are written all the same."""
    tee = Std.ALL if teed else Std.NONE
    result = await run_functions(
        method, worlds.print_both, ("a",), ("b",), log_dir=tmp_path, tee=tee, local_ranks_filter=[1]
    )

    prefix = "[job1]:" if teed else ""
    assert capfd.readouterr() == (f"{prefix}b\n", f"{prefix}b\n")
    if teed:
        assert [_read(result.stdouts[rank]) for rank in (0, 1)] == ["a\n", "b\n"]


@each_method
@each_way
async def test_all_ways_of_writing_are_in_order(
    method: str, way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """What Python, C code, the descriptor and a grandchild write without line ends is in the file in that order."""
    result = await run_functions(method, worlds.print_in_every_way, log_dir=tmp_path, **{way: Std.ALL})

    assert not result.is_failed()
    assert _read(result.stdouts[0]) == "python|c|descriptor|grandchild|" * 3


@each_method
@each_way
@pytest.mark.parametrize(
    ("function", "code"),
    [
        (worlds.print_and_return, 0),
        (worlds.print_and_raise, 1),
        (worlds.print_and_exit, 3),
        (worlds.print_and_drop, 4),
        (worlds.print_and_die, -15),
        (worlds.print_and_abort, -6),
    ],
)
async def test_nothing_is_lost_on_the_way_out(
    method: str,
    way: str,
    function: Callable[[], None],
    code: int,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """However a rank ends, the lines that Python and C have begun are in the file."""
    result = await run_functions(method, function, log_dir=tmp_path, **{way: Std.ALL})

    assert result.exits[0].exitcode == code
    assert _read(result.stdouts[0]) == "python|c|"
    assert _read(result.stderrs[0]).startswith("python|")


@each_method
@each_way
async def test_a_traceback_is_in_the_log(
    method: str, way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The traceback of an uncaught exception is in the rank's stderr, once, with the place it comes from."""
    result = await run_functions(method, worlds.print_and_raise, log_dir=tmp_path, **{way: Std.ERR})

    shown = _read(result.stderrs[0])
    assert shown.count("Traceback (most recent call last)") == 1
    assert "in print_and_raise" in shown
    assert shown.endswith("ZeroDivisionError: the reason\n")


@each_method
async def test_an_interrupted_write_goes_on(method: str, tmp_path: Path) -> None:
    """5 MB printed at once arrive whole although a signal handler interrupts the writing all the time."""
    size = 5_000_000
    result = await run_functions(method, worlds.print_interrupted, (size,), log_dir=tmp_path, tee=Std.OUT,
                                 local_ranks_filter=())  # fmt: skip

    assert result.return_values[0] > 0
    assert Path(result.stdouts[0]).stat().st_size == size + 1


@each_method
async def test_an_interrupted_write_into_a_pipe_goes_on(
    method: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The same where the supervisor pumps: 5 MB are in the file whole."""
    size = 5_000_000
    result = await run_functions(
        method, worlds.print_interrupted, (size,), log_dir=tmp_path, tee=Std.OUT, duplicate_stdout_filters=["never"]
    )

    assert not result.is_failed()
    assert result.return_values[0] > 0
    assert Path(result.stdouts[0]).read_bytes() == b"x" * size + b"\n"


@each_loop
def test_the_supervisors_logging_works_in_a_forked_rank(loop: str, tmp_path: Path) -> None:
    """A logging handler on the supervisor's stderr writes into the rank's log, one on a file into that file."""
    program = f"""{WORLDS}
logging.basicConfig(format="%(message)s",
    handlers=[logging.StreamHandler(), logging.FileHandler(sys.argv[2] + "/shared.log")])
async def main():
    options = {{"log_dir": sys.argv[2], "redirects": Std.ALL, "start_method": "fork"}}
    async with start_processes("job", worlds.log_a_line, {{0: ("zero",), 1: ("one",)}}, **options) as context:
        result = await context.wait()
    result.raise_for_failures()
    print(json.dumps([Path(path).read_text() for path in result.stderrs.values()]))
run(main)
"""
    assert run_driver(program, loop, tmp_path) == '["zero\\n", "one\\n"]\n'
    assert sorted((tmp_path / "shared.log").read_text().splitlines()) == ["one", "zero"]


@pytest.mark.one_of("options")
@each_loop
@each_method
@pytest.mark.parametrize("options", ["", "redirects=Std.ALL", "tee=Std.ALL"])
def test_what_the_supervisor_has_not_flushed_is_printed_once(
    loop: str, method: str, options: str, tmp_path: Path
) -> None:
    """Text in the supervisor's own Python and C buffers when ranks start is printed by it, once, and by no rank."""
    program = f"""{WORLDS}
sys.stdout.write("python pending|")
worlds.c_print("c pending|")
async def main():
    args = {{0: ("zero",), 1: ("one",)}}
    async with start_processes("job", worlds.print_both, args, start_method={method!r}, log_dir=sys.argv[2],
                               {options}) as context:
        result = await context.wait()
    result.raise_for_failures()
    for path in [*result.stdouts.values(), *result.stderrs.values()]:
        assert not path or "pending" not in Path(path).read_text()
run(main)
"""
    done = subprocess.run(
        driver_command(program, loop, tmp_path), env=driver_environment(), capture_output=True, check=False, timeout=60
    )
    shown = done.stdout.decode()

    assert done.returncode == 0, done.stderr
    assert (shown.count("python pending"), shown.count("c pending")) == (1, 1)
    assert b"pending" not in done.stderr
    assert all(word in done.stderr.decode() for word in (("zero", "one") if "redirects" not in options else ()))


@each_method
async def test_devnull_drops_redirected_output(method: str, capfd: pytest.CaptureFixture[str]) -> None:
    """With log_dir=os.devnull redirected output is dropped and teed output is printed."""
    result = await run_functions(method, worlds.print_both, ("a",), log_dir=os.devnull, redirects=Std.ERR, tee=Std.OUT)

    assert not result.is_failed()
    assert capfd.readouterr() == ("[job0]:a\n", "")


@pytest.mark.parametrize("kind", ["closed", "none"])
@each_method
def test_supervisor_without_standard_streams(method: str, kind: str, tmp_path: Path) -> None:
    """Where the supervisor has no stdout and stderr, closed or taken away, ranks run and redirected output arrives."""
    close = "for number in (0, 1, 2): os.close(number)" if kind == "closed" else "sys.stdout = sys.stderr = None"
    program = f"""{WORLDS}
{close}
async def main():
    async with start_processes("job", worlds.print_both, {{0: ("text",)}}, start_method={method!r}) as context:
        await context.wait()
    async with start_processes("job", worlds.print_both, {{0: ("text",)}}, start_method={method!r}, redirects=Std.ALL,
                               log_dir=sys.argv[2]) as context:
        result = await context.wait()
    Path(sys.argv[2], "got").write_text(repr(result.failures) + Path(result.stdouts[0]).read_text())
    os._exit(0)
run(main)
"""
    command: list[Any] = driver_command(program, "asyncio", tmp_path)
    done = subprocess.run(command, env=driver_environment(), capture_output=True, check=False, timeout=60)

    assert done.returncode == 0, done.stderr
    assert (tmp_path / "got").read_text() == "{}text\n"
