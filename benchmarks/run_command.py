"""The command line: how long ``aioelastic run`` takes itself, and how soon a group whose rank died runs again.

    python benchmarks/run_command.py [--rounds 10] [--ranks 4]

Measured in turns, next to ``torchrun`` with the same options if PyTorch is installed: n ranks of true, from the
launcher's start to its end, and the CPU time of all meanwhile, which a busy machine disturbs less. Then n ranks of bash
of which one kills itself when it has seen all others: from its death to the first instruction of the next attempt, of
the rank that is first and of the one that is last.
"""

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

RANK = """\
now=$EPOCHREALTIME
echo $now > $0/$TORCHELASTIC_RESTART_COUNT.$RANK.new
mv $0/$TORCHELASTIC_RESTART_COUNT.$RANK.new $0/$TORCHELASTIC_RESTART_COUNT.$RANK
[ $TORCHELASTIC_RESTART_COUNT = 0 ] || exit 0
[ $RANK = 1 ] || exec sleep 60
while set -- $0/0.?; [ $# -lt $WORLD_SIZE ]; do sleep 0.01; done
sleep 0.$((200 + RANDOM % 100))
echo $EPOCHREALTIME > $0/death
kill -KILL $BASHPID
"""
"""What each rank does, in bash, which can tell the time by itself.

It notes its first instruction. In the first attempt rank 1 notes its death, at any moment of torchrun's interval of
0.1 s between two looks.
"""


def launchers() -> dict[str, list[str]]:
    """Give the commands that there are."""
    found = {"python -m aioelastic run": [sys.executable, "-m", "aioelastic", "run"]}
    script = Path(sys.executable).with_name("aioelastic")
    if script.exists():
        found["aioelastic run"] = [str(script), "run"]
    if find_spec("torch"):
        found["torchrun"] = [sys.executable, "-m", "torch.distributed.run"]
    return found


def run(*command: object) -> None:
    """Run a launcher to its end, which must be a good one."""
    environment = {**os.environ, "LC_ALL": "C", "OMP_NUM_THREADS": "1"}
    # What is installed is compiled, so what is run from a clone should be as well.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    done = subprocess.run([*map(str, command)], check=False, env=environment, capture_output=True, timeout=120)
    if done.returncode:
        raise SystemExit(f"{command} ended with {done.returncode}:\n{done.stderr.decode()}")


def time_run(launcher: list[str], ranks: int) -> dict[str, float]:
    """Give the milliseconds that ranks which do nothing take."""
    begin, used = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    run(*launcher, "--no-python", "--nproc-per-node", ranks, "true")
    end, used_then = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    processor = used_then.ru_utime + used_then.ru_stime - used.ru_utime - used.ru_stime
    return {"start to end": (end - begin) * 1e3, "its CPU time": processor * 1e3}


def time_restart(launcher: list[str], ranks: int) -> dict[str, float]:
    """Give the milliseconds from a rank's death to the next attempt."""
    with tempfile.TemporaryDirectory() as folder:
        options = ("--no-python", "--nproc-per-node", ranks, "--max-restarts", 1)
        run(*launcher, *options, "bash", "-c", RANK, folder)
        death = float(Path(folder, "death").read_text())
        begins = [(float(path.read_text()) - death) * 1e3 for path in Path(folder).glob("1.?")]
    return {"death to first rank": min(begins), "death to last rank": max(begins)}


def measure(figure: Callable[[list[str], int], dict[str, float]], ranks: int, rounds: int) -> None:
    """Measure each launcher in turns, after a round for warming up, and print medians, spread and ratio."""
    subjects = launchers()
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in subjects}
    for number in range(rounds + 1):
        for name, launcher in subjects.items():
            figures = figure(launcher, ranks)
            if number:
                measured[name].append(figures)
    for kind in measured["python -m aioelastic run"][0]:
        values = {name: sorted(each[kind] for each in rows) for name, rows in measured.items()}
        medians = {name: statistics.median(each) for name, each in values.items()}
        for name, each in values.items():
            shown = f"{kind:19} ms  {name:24} {medians[name]:8.1f} {f'({each[0]:.1f} to {each[-1]:.1f})':20}"
            if name != "torchrun" and "torchrun" in medians:
                shown += f"  torchrun takes {medians['torchrun'] / medians[name]:.1f} times as long"
            print(shown)


def main() -> None:
    """Measure both."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--ranks", type=int, default=4, choices=range(2, 11), metavar="2..10")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {options.ranks} ranks, medians of {options.rounds} rounds (and spread)")
    if not find_spec("torch"):
        print("PyTorch is not installed, so there is no torchrun to compare with: pip install 'aioelastic[bench]'")
    measure(time_run, options.ranks, options.rounds)
    measure(time_restart, options.ranks, options.rounds)


if __name__ == "__main__":
    main()
