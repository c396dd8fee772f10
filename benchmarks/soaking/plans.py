"""What a round is to be: values alone, the same for everybody who throws the same dice."""

from dataclasses import dataclass

COMMAND = "command"
LEAVING = ("session", "daemon")
"""Descendants that leave their rank's session."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KinPlan:
    """A process that a rank starts and leaves behind.

    Attributes:
        kind: ``stay`` (in the rank's group), ``group`` (a group of its own), ``session`` or ``daemon`` (double fork).
        deaf: It ignores SIGTERM.
        holds: It keeps the rank's stdout and stderr open.
        executes: It becomes another program.
    """

    kind: str
    deaf: bool
    holds: bool
    executes: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPlan:
    """What a rank does.

    Attributes:
        seed: What its output and its value are made of.
        records: How many records it writes to stdout and to stderr.
        rest: Seconds between some of its records, so that unfinished lines are seen.
        closes_at: The record before which it closes its stdout; beyond the last for never.
        deaf: It ignores SIGTERM.
        stops: It stops itself (SIGSTOP) in the middle.
        kin: The processes it leaves behind.
        ending: ``value``, ``exit``, ``raise``, ``_exit``, ``kill`` or ``linger``.
        number: Exit code, signal, or size of the value.
        pause: Seconds before its ending.
        kill: A signal that it gets from outside, or 0.
        kill_after: Seconds from the start until then.
    """

    seed: int
    records: tuple[int, int]
    rest: float
    closes_at: int
    deaf: bool
    stops: bool
    kin: tuple[KinPlan, ...]
    ending: str
    number: int
    pause: float
    kill: int
    kill_after: float

    @property
    def ends(self) -> bool:
        """Whether it ends by itself."""
        return self.ending != "linger" and not self.stops

    @property
    def succeeds(self) -> bool:
        """Whether it ends with a success if nobody interferes."""
        return self.ends and (self.ending == "value" or (self.ending == "exit" and self.number == 0))


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionPlan:
    """What the caller does with a group.

    Attributes:
        kind: One of those in `soaking.dice`.
        steps: Steps of the loop before a start is cancelled.
        delay: Seconds before the caller acts.
        signal: What a close begins with, or 0 for the group's own.
        grace: Seconds of that close, or a negative number for the group's own.
        second_delay: Seconds from a close to what interferes with it.
        second_grace: Seconds of a second close.
    """

    kind: str
    steps: int
    delay: float
    signal: int
    grace: float
    second_delay: float
    second_grace: float


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupPlan:
    """One group.

    Attributes:
        name: Its name; with a rank's number it is part of no other name.
        method: `COMMAND`, or the start method of functions.
        ranks: Its ranks.
        redirects: Rank -> streams that go to files.
        tees: Rank -> streams that go to files and to the console.
        shown: The only ranks that may use the console, or ``None``.
        filtered: Lines with `soaking.output.WORD` are copied.
        keeps_logs: There are files; otherwise ``log_dir`` is /dev/null.
        death_signal: What ranks get first.
        shutdown_timeout: Seconds from there to SIGKILL.
        drain_timeout: Seconds from an exit to the end of its logs.
        guarded: The orphan guard is asked for, and the sweep of descendants.
        action: What the caller does.
    """

    name: str
    method: str
    ranks: tuple[RankPlan, ...]
    redirects: tuple[int, ...]
    tees: tuple[int, ...]
    shown: tuple[int, ...] | None
    filtered: bool
    keeps_logs: bool
    death_signal: int
    shutdown_timeout: float
    drain_timeout: float
    guarded: bool
    action: ActionPlan

    def way(self, rank: int, stream: int) -> str:
        """Give a stream's way: ``tee``, ``file``, ``inherit`` or ``nowhere``."""
        bit = 1 << stream
        if self.tees[rank] & bit:
            return "tee"
        if self.redirects[rank] & bit:
            return "file"
        return "inherit" if self.is_shown(rank) else "nowhere"

    def is_shown(self, rank: int) -> bool:
        """Tell whether a rank may use the console."""
        return self.shown is None or rank in self.shown

    def ways(self) -> set[str]:
        """Give the ways that its streams take."""
        return {self.way(rank, stream) for rank in range(len(self.ranks)) for stream in range(2)}


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathPlan:
    """How the supervisor itself dies in the middle of a round.

    Attributes:
        kind: ``kill``, ``exit`` or ``crash``.
        delay: Seconds from the round's beginning.
    """

    kind: str
    delay: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RoundPlan:
    """One round.

    Attributes:
        number: Its number.
        loop: ``asyncio`` or ``uvloop``.
        consoles: The kinds of stdout and stderr, as `soaking.consoles` has them.
        groups: The groups, run at the same time.
        death: How the supervisor dies, or ``None``.
        guard_dies: Seconds from the beginning after which the orphan guard is killed, or 0.
    """

    number: int
    loop: str
    consoles: tuple[str, str]
    groups: tuple[GroupPlan, ...]
    death: DeathPlan | None
    guard_dies: float
