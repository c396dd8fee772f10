"""Soak: random groups, round after round, and after each a look whether anything is wrong.

    python benchmarks/soak.py [--minutes 10] [--seed 1] [--round K] [--without-guard]

A round is made by dice that its seed and its number determine, so one round can be run again by ``--round``. Ranks note
for themselves what they write and how they end, and everything that the library says or leaves is held against that.
A supervisor that dies in the middle is a part of it, so rounds are run by a program of their own.

The exit status is 1 if anything was found.
"""

import argparse
import ctypes
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

from soaking.loops import loop_factories
from soaking.rounds import Finding, Soak, Tally
from soaking.supervisors import Supervisor, kill_strangers

_SET_CHILD_SUBREAPER = 36
"""prctl(2): orphans below this program become its children, so none of them gets out of sight."""

PLANTS = (
    *("descriptor", "thread", "process", "stray", "notice", "hang"),
    *("byte", "short", "filtered", "console", "code", "value", "failure"),
)
"""Faults that the soak can make itself."""


def main() -> int:
    """Soak, print, and give the exit status."""
    options = _options()
    if ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        sys.exit("soak: this system does not tell about orphans")
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT):
        # Rounds are about them, and would inherit that nohup ignores them.
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, signal.SIG_DFL)
    # Or nobody would end what is running.
    signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    directory = Path(tempfile.mkdtemp(prefix="soak-", dir=options.directory))
    supervisor = Supervisor(directory / "complaints")
    soak = Soak(
        seed=options.seed,
        guard=not options.without_guard,
        drain=not options.without_drain,
        patience=options.patience,
        plant=options.plant,
        directory=directory,
        supervisor=supervisor,
        loops=tuple(loop_factories()),
    )
    tally, findings = Tally(), list[Finding]()
    try:
        _run_rounds(soak, options, tally, findings)
    finally:
        supervisor.end()
        kill_strangers(supervisor)
        if not findings:
            shutil.rmtree(directory)
    for kind, count in sorted(tally.faults.items()):
        print(f"  {kind}: {count}")
    print(f"{tally.rounds} rounds, {tally.ranks} ranks, {len(findings)} findings")
    return 1 if findings else 0


def _run_rounds(soak: Soak, options: argparse.Namespace, tally: Tally, findings: list[Finding]) -> None:
    end = time.monotonic() + 60 * options.minutes
    number = options.first if options.round is None else options.round
    last = number + options.rounds if options.round is None else number + 1
    while number < last and time.monotonic() < end:
        for each in soak.run(number, tally):
            findings.append(each)
            _print_finding(each, options)
        number += 1
        if tally.rounds % options.report == 0:
            print(f"{tally.rounds} rounds, {tally.ranks} ranks, {len(findings)} findings", flush=True)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=10.0, help="how long to go on")
    parser.add_argument("--rounds", type=int, default=sys.maxsize, help="how many rounds at most")
    parser.add_argument("--seed", type=int, default=1, help="what the dice start from")
    parser.add_argument("--first", type=int, default=0, metavar="K", help="the round to begin with")
    parser.add_argument("--round", type=int, metavar="K", help="run one round alone")
    parser.add_argument("--report", type=int, default=50, metavar="N", help="rounds between lines of progress")
    parser.add_argument("--patience", type=float, default=20.0, help="seconds after which something hangs")
    parser.add_argument("--directory", help="where rounds keep their files; those with findings stay")
    parser.add_argument(
        "--without-guard", action="store_true", help="leave out what needs the orphan guard and the sweep"
    )
    parser.add_argument("--without-drain", action="store_true", help="let a supervisor's death cost teed output")
    parser.add_argument(
        "--plant", action="append", choices=PLANTS, default=[], help="make a fault, to see that it is found"
    )
    return parser.parse_args()


def _print_finding(finding: Finding, options: argparse.Namespace) -> None:
    guard = " --without-guard" * options.without_guard + " --without-drain" * options.without_drain
    print(f"FOUND {finding.kind}: seed {options.seed}, round {finding.number}: {finding.text}")
    print(f"  again: python benchmarks/soak.py --seed {options.seed} --round {finding.number}{guard}", flush=True)


if __name__ == "__main__":
    sys.exit(main())
