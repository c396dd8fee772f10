"""The command line of `python -m benchmarks`."""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from figures import NAMES

from measuring.machine import machine
from measuring.plan import TORCH, is_installed
from measuring.rounds import run_module
from measuring.rows import Results
from measuring.table import table


def main(words: Sequence[str] | None = None) -> int:
    """Measure, or read what was measured, and show it; give the exit status."""
    options = _options(words)
    if options.read:
        results = Results.from_json(json.loads(options.read.read_text()))
    else:
        results = _measure(options.figures or NAMES, options.rounds, quick=options.quick)
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps(results.to_json(), indent=1) + "\n")
    return int(any(section.faults for section in results.sections))


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure side by side, and show it.")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"only these, of: {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=5, help="how often each case is measured (5)")
    parser.add_argument("--quick", action="store_true", help="small cases, to try it out")
    parser.add_argument("--read", type=Path, metavar="FILE", help="show what was measured before, and measure nothing")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what was measured")
    options = parser.parse_args(words)
    if unknown := [name for name in options.figures if name not in NAMES]:
        parser.error(f"there is no figure {unknown[0]}: there are {', '.join(NAMES)}")
    return options


def _measure(names: Sequence[str], rounds: int, *, quick: bool) -> Results:
    begin = time.monotonic()

    def tell(words: str) -> None:
        print(f"{time.monotonic() - begin:4.0f} s  {words}", file=sys.stderr, flush=True)

    if not is_installed(TORCH):
        tell("torch is not installed, so it is left out: pip install 'aioelastic[bench]', on Python 3.11")
    with tempfile.TemporaryDirectory(prefix="aioelastic_benchmarks_") as shared:
        sections = [run_module(name, rounds=rounds, quick=quick, shared=Path(shared), tell=tell) for name in names]
    return Results(machine=machine(rounds), sections=sections)
