"""The results as pictures, which can be read on light and on dark ground."""

from collections.abc import Sequence
from math import floor, log10
from pathlib import Path
from typing import Any, Final

from matplotlib import rc_context
from matplotlib.figure import Figure as Picture
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH, Chart
from measuring.rows import Results, Row, Section
from measuring.table import digits

GREY: Final = "#747b86"
"""Between black and white, as in the diagrams of the pages."""
COLOURS: Final = {AIOELASTIC: "#2f7fe0", ASYNCIO: "#c98a12", TORCH: "#d9534f", FLOOR: "#8a919c"}
OTHERS: Final = ("#3a9d5d", "#9a6fd0", "#2aa3a3", "#c2639b")

LOOK: Final = {
    "font.size": 13,
    "font.family": "sans-serif",
    "text.color": GREY,
    "axes.labelcolor": GREY,
    "axes.edgecolor": GREY,
    "axes.titlesize": 14,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": GREY,
    "grid.alpha": 0.25,
    "xtick.color": GREY,
    "ytick.color": GREY,
    "legend.frameon": False,
    "lines.linewidth": 2.2,
    "lines.markersize": 7,
    # Words stay words, and the same numbers give the same file.
    "svg.fonttype": "none",
    "svg.hashsalt": "aioelastic",
}


def draw(results: Results, folder: Path) -> None:
    """Draw all charts of the sections into a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for section in results.sections:
        for chart in section.charts:
            rows = [row for row in section.rows if _is_in(row, chart)]
            if rows:
                with rc_context(LOOK):  # type: ignore[arg-type, unused-ignore] # it takes any mapping of such names
                    _picture(section, chart, rows).savefig(
                        folder / f"{chart.name}.svg", transparent=True, metadata={"Date": None}
                    )


def _is_in(row: Row, chart: Chart) -> bool:
    if row.key != chart.figure or (chart.over and chart.over not in row.parameters):
        return False
    return not chart.only or row.label in chart.only


def _picture(section: Section, chart: Chart, rows: Sequence[Row]) -> Picture:
    subjects = [each for each in section.subjects if any(each in row.values for row in rows)]
    colours = dict(zip([each for each in subjects if each not in COLOURS], OTHERS, strict=False)) | COLOURS
    height = 4.2 if chart.over else 1.5 + 0.34 * len(rows) * len(subjects)
    picture = Picture(figsize=(8, height), layout="constrained")
    axes = picture.add_subplot()
    axes.set_title(chart.title, loc="left")
    if chart.over:
        _lines(axes, chart, rows, subjects, colours)
    else:
        _bars(axes, chart, rows, subjects, colours)
    picture.legend(loc="outside lower left", ncols=4 if sum(map(len, subjects)) < 40 else 3)
    return picture


def _lines(axes: Any, chart: Chart, rows: Sequence[Row], subjects: Sequence[str], colours: dict[str, str]) -> None:
    """Draw a line for each subject, with the extremes of its rounds."""
    over = chart.over or ""
    for subject in subjects:
        there = sorted((row for row in rows if subject in row.values), key=lambda row: row.parameters[over])
        across = [row.parameters[over] for row in there]
        lows, highs = ([each(row.values[subject]) for row in there] for each in (min, max))
        colour, order = colours[subject], 3 if subject == AIOELASTIC else 2
        medians = [row.medians[subject] for row in there]
        axes.plot(across, medians, "o-", label=subject, color=colour, zorder=order)
        axes.fill_between(across, lows, highs, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(sorted({row.parameters[over] for row in rows}))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_minor_locator(LogLocator(subs=[]))
    axes.set_xlabel(chart.axis or over)
    axes.set_yscale(chart.scale)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.set_ylabel(rows[0].unit)


def _bars(axes: Any, chart: Chart, rows: Sequence[Row], subjects: Sequence[str], colours: dict[str, str]) -> None:
    """Draw a group of bars for each row, with the number at each."""
    thick = 0.8 / len(subjects)
    for place, subject in enumerate(subjects):
        there = [(number, row) for number, row in enumerate(rows) if subject in row.values]
        medians = [row.medians[subject] for _, row in there]
        heights = [number + (place - (len(subjects) - 1) / 2) * thick for number, _ in there]
        bars = axes.barh(heights, medians, thick * 0.9, label=subject, color=colours[subject])
        axes.bar_label(bars, [f" {digits(each)}" for each in medians], padding=4)
    axes.set_yticks(range(len(rows)), [row.label or row.name for row in rows])
    axes.invert_yaxis()
    axes.grid(visible=False, axis="y")
    if chart.scale == "log":
        # From a power of ten on, as the length of a bar that begins anywhere would say nothing.
        axes.set_xscale("log")
        axes.set_xlim(left=10 ** floor(log10(0.95 * min(row.medians[each] for row in rows for each in row.values))))
        axes.xaxis.set_minor_formatter(NullFormatter())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda number, _: f"{number:g}"))
    axes.margins(x=0.12)
    axes.set_xlabel(rows[0].unit)
