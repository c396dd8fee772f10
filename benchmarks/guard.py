"""The orphan guard: what it costs a group, and how soon it ends what a killed supervisor leaves behind.

    python benchmarks/guard.py [--rounds 20] [--kills 20] [--ranks 50]

First, with and without the guard in turns: four ranks of /bin/true, until they are started and until the group is
closed. Then the time until the guard listens, and its memory then and when it has prepared for its work. Then a
supervisor is killed by SIGKILL whose ranks write lines to teed logs, ignore SIGTERM, and have a child that ignores it
as well and a daemon in a session of its own: seconds until all is gone, and whether the lines are in the files.
"""

import argparse
import asyncio
import fcntl
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import psutil

from aioelastic import Std, start_processes
from aioelastic._guard import guard as guard_module

FAMILY = """\
(trap '' TERM; exec sleep 97) &
setsid sleep 98 &
trap '' TERM
i=0
while :; do echo line $i; echo $i > $0.new; mv $0.new $0; i=$((i+1)); sleep 0.01; done
"""
"""A rank: it notes each line in a file of its own once that is written."""

MARK = "AIOELASTIC_BENCHMARK_MARK"


async def time_group(*, orphan_guard: bool) -> tuple[float, float]:
    """Give the milliseconds until four ranks are started, and until their group is closed."""
    begin = time.perf_counter()
    args: dict[int, tuple[str, ...]] = dict.fromkeys(range(4), ())
    async with start_processes("true", "/bin/true", args, orphan_guard=orphan_guard) as context:
        started = time.perf_counter()
        await context.wait()
    return (started - begin) * 1e3, (time.perf_counter() - begin) * 1e3


async def measure_cost(rounds: int) -> None:
    """Run groups with and without the guard in turns."""
    times: dict[bool, list[tuple[float, float]]] = {True: [], False: []}
    for _ in range(rounds):
        for guarded, measured in times.items():
            measured.append(await time_group(orphan_guard=guarded))
    for guarded, measured in times.items():
        started, closed = (statistics.median(each) for each in zip(*measured, strict=True))
        print(f"{'with' if guarded else 'without':8} guard: started {started:6.1f} ms, closed {closed:6.1f} ms")


def measure_starts(rounds: int) -> None:
    """Start guards and bare interpreters in turns: the time until each listens, and until each is over."""
    listens, bare = [], []
    for _ in range(rounds):
        begin = time.perf_counter()
        helper = guard_module._Helper()  # noqa: SLF001 - there is no public way to the guard, nor need of one
        helper.tell(b"D", "0" * 16)
        while _unread(helper._socket.fileno()):  # noqa: SLF001 - see above
            time.sleep(0.0001)
        listens.append((time.perf_counter() - begin) * 1e3)
        helper.kill()
        helper.reap()
        begin = time.perf_counter()
        subprocess.run([sys.executable, "-I", "-S", "-c", "pass"], check=True)
        bare.append((time.perf_counter() - begin) * 1e3)
    print(
        f"a guard listens after {statistics.median(listens):.1f} ms; an interpreter that does nothing is over after "
        f"{statistics.median(bare):.1f} ms"
    )


async def measure_memory() -> None:
    """Look at the guard of a group."""
    async with start_processes("sleep", "sleep", {0: (60,)}):
        helper = guard_module._guard._helper  # noqa: SLF001 - see above
        if helper is None:
            return
        process = psutil.Process(helper.pid)
        for moment, pause in (("when it listens", 0.2), ("when prepared", 2.0)):
            await asyncio.sleep(pause)
            memory = process.memory_full_info()
            print(f"its memory {moment:16}: {memory.rss / 2**20:5.1f} MiB resident, {memory.uss / 2**20:4.1f} its own")


def _unread(socket: int) -> int:
    """Give the bytes that the other end has not read (unix(7), SIOCOUTQ)."""
    return int.from_bytes(fcntl.ioctl(socket, termios.TIOCOUTQ, bytes(4)), sys.byteorder)


def kill_supervisor(ranks: int) -> tuple[float, int, int]:
    """Kill one supervisor; give the seconds until all was gone, and the numbers of lines written and of wrong logs."""
    mark = f"{os.getpid()}-{time.time_ns()}"
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, __file__, "--supervise", folder, str(ranks)]
        with subprocess.Popen(command, env={**os.environ, MARK: mark}, stdout=subprocess.DEVNULL) as process:
            while len([each for each in Path(folder).glob("note*") if each.suffix != ".new"]) < ranks:
                time.sleep(0.01)
            time.sleep(0.5)
            process.kill()
        written = [int((Path(folder) / f"note{rank}").read_text()) for rank in range(ranks)]
        begin = time.perf_counter()
        while marked := _marked(mark):
            if time.perf_counter() - begin > 30:
                for pid in marked:
                    os.kill(pid, signal.SIGKILL)
                break
            time.sleep(0.01)
        seconds = time.perf_counter() - begin
        logs = {int(path.parent.name): path.read_text() for path in Path(folder).glob("logs/*/attempt_0/*/stdout.log")}
        wrong = sum(not _is_whole(logs.get(rank, ""), count) for rank, count in enumerate(written))
        return seconds, sum(written) + ranks, wrong


def _is_whole(log: str, last: int) -> bool:
    """Tell whether a log has each line once and in order, at least up to the last one noted."""
    count = log.count("\n")
    return count > last and log == "".join(f"line {number}\n" for number in range(count))


def _marked(mark: str) -> list[int]:
    found = []
    for pid in psutil.pids():
        try:
            if f"{MARK}={mark}\0".encode() in Path(f"/proc/{pid}/environ").read_bytes():
                found.append(pid)
        except OSError:
            continue
    return found


async def supervise(folder: str, ranks: int) -> None:
    """Be a supervisor that is to be killed."""
    args = {rank: ("-c", FAMILY, f"{folder}/note{rank}") for rank in range(ranks)}
    async with start_processes("family", "sh", args, log_dir=f"{folder}/logs", tee=Std.ALL):
        await asyncio.sleep(600)


def main() -> None:
    """Measure everything."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--ranks", type=int, default=50)
    parser.add_argument("--supervise", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.supervise:
        asyncio.run(supervise(options.supervise[0], int(options.supervise[1])))
        return
    print(f"Python {sys.version.split()[0]}, medians of {options.rounds} rounds")
    asyncio.run(measure_cost(options.rounds))
    measure_starts(options.rounds)
    asyncio.run(measure_memory())
    for number in range(options.kills):
        seconds, lines, wrong = kill_supervisor(options.ranks)
        gone = f"{options.ranks} ranks gone after {seconds:.2f} s"
        print(f"kill {number + 1:2}: {gone}, {lines} lines noted, {wrong} logs wrong")


if __name__ == "__main__":
    main()
