"""The command line of `python -m benchmarks`."""

import argparse
import json
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from figures import NAMES

from measuring.machine import machine
from measuring.page import filled
from measuring.rounds import run_figures
from measuring.rows import Results
from measuring.table import table


def main(words: Sequence[str] | None = None) -> int:
    """Measure, or read what was measured, and show it; give the exit status."""
    options = _options(words)
    if options.read:
        results = _read(options.read)
    else:
        sections = run_figures(options.figures or NAMES, rounds=options.rounds, quick=options.quick)
        results = Results(machine=machine(options.rounds), sections=sections)
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps(results.to_json(), indent=1) + "\n")
    if options.charts:
        from measuring.charts import draw  # noqa: PLC0415 - who wants none needs no plotting library

        draw(results, options.charts)
    if options.page:
        again = _read(options.again) if options.again else None
        options.page.write_text(filled(options.page.read_text(), results, again))
    return int(any(section.faults for section in results.sections))


def _read(file: Path) -> Results:
    return Results.from_json(json.loads(file.read_text()))


def _options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="Measure side by side, and show it.")
    parser.add_argument("figures", nargs="*", metavar="FIGURE", help=f"only these, of: {', '.join(NAMES)}")
    parser.add_argument("--rounds", type=int, default=5, help="how often each case is measured (5)")
    parser.add_argument("--quick", action="store_true", help="small cases, to try it out")
    parser.add_argument("--read", type=Path, metavar="FILE", help="measure nothing, take what --json wrote")
    parser.add_argument("--json", type=Path, metavar="FILE", help="where to write what was measured")
    parser.add_argument("--charts", type=Path, metavar="FOLDER", help="where to draw it")
    parser.add_argument("--page", type=Path, metavar="FILE", help="a page whose tables are to be filled")
    parser.add_argument("--again", type=Path, metavar="FILE", help="a second run, whose goals the page shows, too")
    options = parser.parse_args(words)
    if unknown := [name for name in options.figures if name not in NAMES]:
        parser.error(f"there is no figure {unknown[0]}: there are {', '.join(NAMES)}")
    if options.rounds < 1:
        parser.error("--rounds must be 1 or more")
    if options.charts and not find_spec("matplotlib"):
        parser.error("--charts needs matplotlib: pip install 'aioelastic[bench]'")
    return options
