"""Supervisors that die of SIGKILL: each byte that a rank has written is in its file or still in its pipe."""

import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers.drivers import LOOPS, driver_command, driver_environment
from tests.helpers.supervisors import wait_until

RANKS = 4

DRIVER = f"""
import socket, subprocess
from aioelastic._logs.group_logs import GroupLogs
from aioelastic._logs.routes import route_group

async def main():
    files = {{rank: f"{{sys.argv[3]}}/{{rank}}" for rank in range({RANKS})}}
    dest = LogsDest(files, {{}}, files, filtered_stdout=sys.argv[3] + "/filtered")
    routes = route_group(dest, {RANKS}, None, stdout_filtered=True, stderr_filtered=False)
    logs = GroupLogs(routes, {{rank: f"[{{rank}}]:" for rank in files}}, {{"stdout": ["999999"], "stderr": []}})
    await logs.open()
    holder = socket.socket(fileno=int(sys.argv[2]))
    for rank in files:
        with logs.handing_over(rank) as stdio:
            (pair,) = logs.pumped(rank)
            started = subprocess.Popen(["seq", "100000000"], stdout=stdio["stdout"])
            socket.send_fds(holder, [b"%9d" % started.pid], pair)
    await asyncio.sleep(60)

run(main)
"""


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("megabytes", [0, 0.3, 1, 2, 5])
@pytest.mark.half
def test_a_killed_supervisor_loses_and_doubles_nothing(tmp_path: Path, loop: str, megabytes: float) -> None:
    """Whoever holds duplicates can append what is in the pipe to the file, and every number is there once, in order."""
    ours, theirs = socket.socketpair()
    with (
        ours,
        subprocess.Popen(
            driver_command(DRIVER, loop, theirs.fileno(), tmp_path),
            stdout=subprocess.DEVNULL,
            pass_fds=[theirs.fileno()],
            env=driver_environment(),
        ) as driver,
    ):
        theirs.close()
        received = [socket.recv_fds(ours, 9, 2) for _ in range(RANKS)]
        wait_until(lambda: (tmp_path / "0").stat().st_size >= megabytes * 1e6, "output")
        # Not at the end of a wait alone: at any moment of the work.
        time.sleep(megabytes / 1000)
        driver.kill()
        driver.wait()
    for rank, (pid, (pipe, file), _, _) in enumerate(received):
        os.kill(int(pid), signal.SIGKILL)
        move_the_rest(pipe, file)

        *numbers, _begun = (tmp_path / str(rank)).read_bytes().split(b"\n")
        assert numbers == [b"%d" % number for number in range(1, len(numbers) + 1)]
        assert len(numbers) > 1000


def move_the_rest(pipe: int, file: int) -> None:
    """Append what is in a pipe to a file, once its writers are gone, and close both."""
    os.set_blocking(pipe, True)
    while rest := os.read(pipe, 1024 * 1024):
        assert os.pwrite(file, rest, os.fstat(file).st_size) == len(rest)
    os.close(pipe)
    os.close(file)
