"""The results as a table on the screen."""

from collections.abc import Iterator, Sequence

from measuring.rows import Results, Row, Section


def digits(number: float) -> str:
    """Write a number with three digits that count, or all before the point."""
    for least, places in ((100, 0), (10, 1), (1, 2), (0.1, 3)):
        if abs(number) >= least:
            return f"{number:.{places}f}"
    return f"{round(number, 4):g}"


def spread(values: Sequence[float]) -> str:
    """Write the least and the greatest value."""
    return f"{digits(min(values))}-{digits(max(values))}" if len(values) > 1 else ""


def goal_words(row: Row) -> str:
    """Write the goal."""
    return "" if row.goal is None else f"{'at least' if row.more_is_better else 'at most'} {digits(row.goal)}"


def verdict(row: Row) -> str:
    """Say whether the goal is reached."""
    return {None: "", True: "held", False: "MISSED"}[row.is_held]


def table(results: Results) -> str:
    """Write all sections, and how many goals are held."""
    lines = [", ".join(f"{name} {value}" for name, value in results.machine.items())]
    for section in results.sections:
        lines += ["", section.title, *_aligned([_head(section), *_body(section)])]
        lines += [f"failed: {fault}" for fault in section.faults]
    verdicts = [row.is_held for section in results.sections for row in section.rows if row.is_held is not None]
    held = f"; {verdicts.count(True)} of {len(verdicts)} goals are held" if verdicts else ""
    lines += ["", f"The numbers are medians (and extremes){held}."]
    return "\n".join(lines)


def _head(section: Section) -> list[str]:
    return ["", "unit", *section.subjects, "goal", ""]


def _body(section: Section) -> Iterator[list[str]]:
    for row in section.rows:
        medians = row.medians
        cells = [
            f"{digits(medians[subject])} ({spread(row.values[subject])})".removesuffix(" ()")
            if subject in medians
            else "-"
            for subject in section.subjects
        ]
        yield [row.title, row.unit, *cells, goal_words(row), verdict(row)]


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
