"""What was measured, as rows of a table, and as JSON."""

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from measuring.plan import AIOELASTIC, Case, Chart, Figure


@dataclass(slots=True, kw_only=True)
class Row:
    """A figure under certain circumstances, with a number for each subject and round."""

    label: str
    parameters: dict[str, Any]
    key: str
    name: str
    unit: str
    more_is_better: bool
    values: dict[str, list[float]] = field(default_factory=dict)
    goal: float | None = None
    """The bound for aioelastic."""

    @property
    def title(self) -> str:
        """What was measured, and the circumstances."""
        return ", ".join(filter(None, (self.name, self.label)))

    @property
    def medians(self) -> dict[str, float]:
        """The median of each subject's rounds."""
        return {subject: statistics.median(values) for subject, values in self.values.items()}

    @property
    def is_held(self) -> bool | None:
        """Whether aioelastic's median reaches the goal; ``None`` if there is no goal, or nothing measured."""
        reached = self.medians.get(AIOELASTIC)
        if self.goal is None or reached is None:
            return None
        return reached >= self.goal if self.more_is_better else reached <= self.goal


@dataclass(slots=True, kw_only=True)
class Section:
    """What was measured by one module."""

    name: str
    title: str
    rows: list[Row]
    charts: list[Chart]
    faults: list[str]
    """Of measurements that gave no numbers: why."""

    @property
    def subjects(self) -> list[str]:
        """All subjects, in the order of their first row."""
        return list(dict.fromkeys(subject for row in self.rows for subject in row.values))


@dataclass(slots=True, kw_only=True)
class Results:
    """What was measured in one run, and where."""

    machine: dict[str, str]
    sections: list[Section]

    def to_json(self) -> dict[str, Any]:
        """Give what JSON can hold."""
        return asdict(self)

    @classmethod
    def from_json(cls, read: Mapping[str, Any]) -> "Results":
        """Take it back."""
        sections = [
            Section(
                name=each["name"],
                title=each["title"],
                rows=[Row(**row) for row in each["rows"]],
                charts=[Chart(**chart) for chart in each["charts"]],
                faults=list(each["faults"]),
            )
            for each in read["sections"]
        ]
        return cls(machine=dict(read["machine"]), sections=sections)


def rows_of(
    figures: Sequence[Figure], cases: Sequence[Case], measured: Sequence[Sequence[Mapping[str, float]]]
) -> list[Row]:
    """Put numbers into rows, and hold goals against them.

    Args:
        figures: The figures of the module, in the order of the rows of one label.
        cases: The cases of the module.
        measured: For each case, what its rounds gave.
    """
    rows: dict[tuple[str, str], Row] = {}
    firsts: dict[tuple[str, str], tuple[Figure, Case]] = {}
    for label in dict.fromkeys(case.label for case in cases):
        for figure in figures:
            for case, rounds in zip(cases, measured, strict=True):
                values = [each[figure.key] for each in rounds if figure.key in each]
                if case.label != label or not values:
                    continue
                at = (label, figure.key)
                if at not in rows:
                    rows[at] = Row(
                        label=label,
                        parameters=case.parameters,
                        key=figure.key,
                        name=figure.name,
                        unit=figure.unit,
                        more_is_better=figure.more_is_better,
                    )
                    firsts[at] = (figure, case)
                rows[at].values[case.subject] = values
    for at, (figure, case) in firsts.items():
        rows[at].goal = figure.goal(case, rows[at].medians) if figure.goal else None
    return list(rows.values())
