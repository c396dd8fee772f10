"""The results as tables of a page: each stands between ``<!-- begin NAME -->`` and ``<!-- end NAME -->``."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace

from measuring.plan import AIOELASTIC, ASYNCIO, FLOOR, TORCH
from measuring.rows import Results, Row
from measuring.table import digits, goal_words, spread, verdict


def filled(page: str, results: Results, again: Results | None = None) -> str:
    """Give a page with the tables of these results, and the goals of a second run's; the rest stays as it is."""
    tables = {section.name: list(_table(section.rows, section.subjects)) for section in results.sections}
    tables["machine"] = [f"* {name}: {value}" for name, value in results.machine.items()]
    tables["goals"] = list(_goals(results))
    if again is not None:
        tables["again"] = list(_goals(again))

    def fill(found: re.Match[str]) -> str:
        lines = tables.get(found["name"])
        return found[0] if lines is None else "\n".join([found["begin"], "", *lines, "", found["end"]])

    return re.sub(
        r"(?P<begin><!-- begin (?P<name>\w+) -->)\n.*?(?P<end><!-- end (?P=name) -->)", fill, page, flags=re.DOTALL
    )


def _goals(results: Results) -> Iterator[str]:
    """Write the rows that have a goal, of all sections."""
    rows = [
        replace(row, name=f"{section.name}: {row.name}")
        for section in results.sections
        for row in section.rows
        if row.goal is not None
    ]
    return _table(rows, [AIOELASTIC, TORCH, ASYNCIO, FLOOR])


def _table(rows: Sequence[Row], subjects: Sequence[str]) -> Iterator[str]:
    """Write rows, with columns for goals if there are any."""
    others = [subject for subject in subjects if subject != AIOELASTIC]
    columns = [AIOELASTIC, *others] if AIOELASTIC in subjects else others
    goals = any(row.goal is not None for row in rows)
    yield _line(["what", "unit", *columns, *(("goal", "") if goals else ())])
    yield _line(["---"] * (2 + len(columns) + 2 * goals))
    for row in rows:
        cells = [_cell(row, subject) for subject in columns]
        yield _line([row.title, row.unit, *cells, *((goal_words(row), verdict(row)) if goals else ())])


def _cell(row: Row, subject: str) -> str:
    values = row.values.get(subject)
    if values is None:
        return "-"
    number = digits(row.medians[subject])
    number = f"**{number}**" if subject == AIOELASTIC else number
    return f"{number} ({spread(values)})" if spread(values) else number


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"
