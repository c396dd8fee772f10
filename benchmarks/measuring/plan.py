"""What a module of `figures` says: its figures, its cases, and its charts."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, Literal, Protocol, TypeAlias

AIOELASTIC: Final = "aioelastic"
ASYNCIO: Final = "plain asyncio"
TORCH: Final = "torch"
FLOOR: Final = "floor"
"""What the system alone can do: a bare loop of `Popen`, `cat`, `tee` and `sed`."""

Goal: TypeAlias = Callable[["Case", Mapping[str, float]], float | None]
"""Gives the bound for aioelastic in the row of a case, from the medians of the row by subject; ``None`` for no goal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A number that each case of a module gives, or some of them."""

    key: str
    """Its name in what the child gives."""
    name: str
    """What it is, for the reader of a table."""
    unit: str
    more_is_better: bool = False
    goal: Goal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One subject under certain circumstances; cases that differ only in their subject make a row of the table."""

    subject: str
    label: str = ""
    """The circumstances, for the reader of a table, such as ``4 ranks``."""
    parameters: dict[str, Any] = field(default_factory=dict)
    """What the measuring function needs to know: only what JSON can hold, as it goes to another process."""
    rounds: int | None = None
    """How often it is measured at most, where that takes long."""

    def is_due(self, number: int) -> bool:
        """Tell whether it is measured in a round, by the number from 0."""
        return self.rounds is None or number < self.rounds


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """A picture of a module's rows: bars by label, or, with a parameter for the horizontal axis, lines that grow."""

    name: str
    """The name of the file, without its ending."""
    title: str
    figure: str
    """The key of what is drawn."""
    over: str | None = None
    """The parameter on the horizontal axis, which then is a logarithmic one."""
    axis: str = ""
    """What that parameter is, for the reader."""
    only: Sequence[str] = ()
    """The labels of the rows that are in it; none for all that have the figure, and the parameter."""
    scale: Literal["linear", "log"] = "log"
    """That of the axis with the numbers."""


class FigureModule(Protocol):
    """A module of `figures`."""

    TITLE: str
    FIGURES: Sequence[Figure]
    CHARTS: Sequence[Chart]

    def cases(self, *, quick: bool) -> Sequence[Case]:
        """Give all cases, in the order of the table; small ones to try it out, if it is to be quick."""

    def measure(self, case: Case, folder: Path) -> Mapping[str, float]:
        """Measure one case, in a process of its own, with an empty folder; give numbers by the figures' keys.

        ``folder.parent`` is shared by all measurements of a run: it may keep what is slow to make.
        """


def at_most(bound: float, *labels: str) -> Goal:
    """Make a goal of a number, for all rows or for those with certain labels."""
    return lambda case, _: bound if not labels or case.label in labels else None


def times(factor: float, subject: str, *labels: str) -> Goal:
    """Make a goal of a multiple of another subject's median, where that was measured."""

    def goal(case: Case, medians: Mapping[str, float]) -> float | None:
        if subject not in medians or (labels and case.label not in labels):
            return None
        return factor * medians[subject]

    return goal


def in_ranks(count: int) -> str:
    """Write a number of ranks, as labels do."""
    return f"{count} ranks" if count > 1 else "1 rank"


def is_installed(subject: str) -> bool:
    """Tell whether a subject can be measured here."""
    return subject != TORCH or find_spec("torch") is not None
