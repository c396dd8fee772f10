"""Cases from the field about starting: each test is named after what must hold, and links the report."""

import asyncio
import os
import pty
import select
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from aioelastic import ExitCause, SpecificationError, Std, start_processes
from tests.helpers.drivers import LOOPS, driver_command, driver_environment, run_driver
from tests.helpers.programs import SLEEP, shells

# Case 5 (cancelled starts) fills a file of its own: tests/contexts/test_cancelled_start.py. Case 6 (starting from a big
# process) is a matter of time: benchmarks/figures/start.py measures it.


@pytest.mark.parametrize("loop", LOOPS)
def test_starting_works_off_the_main_thread(loop: str) -> None:
    """A thread with its own loop starts, waits for and closes a group while the main thread has no loop at all.

    https://github.com/pytorch/pytorch/issues/135088
    """
    program = """
import threading
def work():
    async def main():
        async with start_processes("job", "sh", {0: ("-c", "exit 3"), 1: ("-c", "exec sleep 60")}) as context:
            result = await context.wait()
        print(result.exits[0].exitcode, result.exits[1].signal)
    run(main)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    assert run_driver(program, loop) == "3 SIGTERM\n"


async def test_oversized_variable_is_named_before_any_rank_starts(tmp_path: Path) -> None:
    """A value of 200 kB for rank 3 of 4 is an error at once, with rank and name and not the value; nothing ran.

    https://github.com/ray-project/ray/issues/47432
    """
    envs: dict[int, dict[str, str]] = {0: {}, 1: {}, 2: {}, 3: {"RUNTIME_ENV": "secret" * 35_000}}
    args = dict.fromkeys(range(4), ("-c", f"touch {tmp_path}/ran"))

    with pytest.raises(SpecificationError, match="envs of rank 3, variable 'RUNTIME_ENV', takes 2100") as caught:
        await start_processes("job", "sh", args, envs, log_dir=tmp_path / "logs", redirects=Std.ALL)

    assert "secret" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


TYPING = """
import tty
os.close(os.open(os.ttyname(0), os.O_RDWR))  # a session without a terminal gets the first one it opens
tty.setraw(0)
async def main():
    args = {0: ("-c", "cat; exec sleep 60"), 1: ("-c", "cat < /dev/tty; exit 0"), 2: ("-c", "read line; exit 9")}
    got = b""
    async with start_processes("job", "sh", args, redirects=Std.ALL) as context:
        result = await context.wait()
        assert (result.exits[2].exitcode, result.exits[2].cause.value) == (9, "ended by itself"), result
    async with start_processes("job", "sh", {0: ("-c", "cat; cat < /dev/tty; exec sleep 60")}, redirects=Std.ALL):
        os.write(1, b"ready")
        while b"." not in got:
            got += await asyncio.to_thread(os.read, 0, 100)
    Path(sys.argv[2]).write_bytes(got)
run(main)
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_ranks_do_not_eat_what_is_typed(loop: str, tmp_path: Path) -> None:
    """Under a terminal, ranks are at the end of their input at once, and the parent gets every byte that is typed.

    https://github.com/lsdefine/GenericAgent/issues/656
    """
    ours, theirs = pty.openpty()
    command = driver_command(TYPING, loop, tmp_path / "got")
    process = subprocess.Popen(
        command, env=driver_environment(), stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True
    )
    try:
        os.close(theirs)
        shown = _read_until(ours, b"ready")
        typed = bytes(range(ord("a"), ord("z") + 1)) * 20
        for start in range(0, len(typed), 7):
            os.write(ours, typed[start : start + 7])
        os.write(ours, b".")
        process.wait(30)
    finally:
        process.kill()
        process.wait()
        os.close(ours)

    assert process.returncode == 0, shown
    assert (tmp_path / "got").read_bytes() == typed + b"."


MANY = """
resource.setrlimit(resource.RLIMIT_NOFILE, (256, 4096))
def count():
    return len(os.listdir("/proc/self/fd"))
async def main():
    args = dict.fromkeys(range(200), ("-c", "echo out"))
    options = {"log_dir": sys.argv[2], "tee": Std.ALL}
    before = count()
    try:
        await start_processes("job", "sh", args, **options)
    except DescriptorLimitError as error:
        assert 800 <= error.needed <= 1500 and str(error.needed) in str(error) and "200 ranks" in str(error), error
        assert error.limit == 256 and error.errno == 24
        needed = error.needed
    else:
        raise AssertionError("it started")
    assert list(Path(sys.argv[2]).iterdir()) == [] and count() == before
    resource.setrlimit(resource.RLIMIT_NOFILE, (needed, 4096))
    async with start_processes("job", "sh", args, **options) as context:
        result = await context.wait()
    assert not result.failures, result
    assert all(Path(path).read_text() == "out\\n" for path in result.stdouts.values())
    deadline = time.monotonic() + 3
    while count() != before:
        assert time.monotonic() < deadline, (count(), before)
        await asyncio.sleep(0.01)
run(main)
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_more_ranks_than_open_files_is_said_up_front(loop: str, tmp_path: Path) -> None:
    """With a limit of 256, 200 teed ranks are refused with the need named; with just that limit they all work.

    https://github.com/Supervisor/supervisor/issues/489
    """
    shown = run_driver(MANY, loop, tmp_path)

    assert shown.count(":out") == 200


async def test_started_group_survives_the_thread_it_was_started_in() -> None:
    """A group whose loop runs in a short-lived helper's thread is held and closed from another.

    https://github.com/pytorch/pytorch/issues/135088
    """
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:

        async def start() -> Any:
            return await start_processes("job", "sh", shells(SLEEP))

        context = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
        asyncio.run_coroutine_threadsafe(context.close(), loop).result(20)
        result = asyncio.run_coroutine_threadsafe(context.wait(), loop).result(20)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()

    assert result.exits[0].cause is ExitCause.STOPPED


def _read_until(descriptor: int, sign: bytes) -> bytes:
    got = b""
    while sign not in got:
        assert select.select([descriptor], [], [], 30)[0], got
        got += os.read(descriptor, 1000)
    return got
