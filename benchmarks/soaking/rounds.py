"""One round from its plan to its findings, as seen from outside of the supervisor."""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from soaking.consoles import PipeReader
from soaking.dice import plan_round
from soaking.entries import journal_path, read_journal
from soaking.plans import RoundPlan
from soaking.stock import described, is_alive
from soaking.streams import Written, judge_consoles, judge_file, judge_filtered, written_streams
from soaking.supervisors import Supervisor, kill_strangers
from soaking.verdicts import judge_group

ORPHANED = 6.0
"""Seconds after the supervisor's death in which everything has to be gone: 4 promised, 2 for a busy machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """Something that should not be.

    Attributes:
        number: The round's number.
        kind: The check that found it.
        text: What was found.
    """

    number: int
    kind: str
    text: str


@dataclass(slots=True, kw_only=True)
class Tally:
    """What was done in all rounds."""

    rounds: int = 0
    ranks: int = 0
    faults: Counter[str] = field(default_factory=Counter)

    def count(self, plan: RoundPlan, ended: str, seen: dict[str, Any]) -> None:
        """Count a round."""
        self.rounds += 1
        self.ranks += sum(len(group.ranks) for group in plan.groups)
        self.faults[f"loop: {plan.loop}"] += 1
        for kind in plan.consoles:
            self.faults[f"console: {kind}"] += 1
        if plan.death is not None:
            self.faults[f"supervisor: {plan.death.kind}{'' if ended == 'died' else ' (too late)'}"] += 1
        for group in plan.groups:
            self.faults[f"caller: {group.action.kind}"] += 1
            self.faults[f"method: {group.method}"] += 1
            for rank in group.ranks:
                self.faults.update(f"left behind: {kin.kind}" for kin in rank.kin)
                self.faults[f"ending: {rank.ending}"] += 1
                self.faults["rank is deaf"] += rank.deaf
                self.faults["rank stops itself"] += rank.stops
        self.faults["guard is killed"] += seen.get("guard killed", False)
        self.faults["killed from outside"] += sum(len(group["kills"]) for group in seen.get("groups", ()))


@dataclass(frozen=True, slots=True, kw_only=True)
class Soak:
    """What all rounds of a run have in common.

    Attributes:
        seed: The seed.
        guard: What only the orphan guard and the sweep of descendants can end is included.
        drain: Of a supervisor that has died, what is left in the ranks' pipes goes to their files.
        patience: Seconds after which something hangs.
        plant: Faults to be made by the soak itself.
        directory: Where rounds have their files.
        supervisor: What runs them.
        loops: The event loops that there are.
    """

    seed: int
    guard: bool
    drain: bool
    patience: float
    plant: Sequence[str]
    directory: Path
    supervisor: Supervisor
    loops: tuple[str, ...]

    def run(self, number: int, tally: Tally) -> list[Finding]:
        """Run one round; its directory stays if there are findings."""
        plan = plan_round(self.seed, number, guard=self.guard, loops=self.loops)
        directory = self.directory / f"round{number}"
        (directory / "nursery").mkdir(parents=True)
        readers = {
            index: PipeReader(directory / f"console{index + 1}")
            for index, kind in enumerate(plan.consoles)
            if kind == "pipe"
        }
        order = {"seed": self.seed, "number": number, "guard": self.guard, "plant": self.plant}
        order |= {"directory": str(directory), "patience": self.patience}
        ended = self.supervisor.run(order, 2 * self.patience)
        survivors = self._survivors(directory, ORPHANED if ended == "died" else self.patience / 20)
        read = {index: reader.finish() for index, reader in readers.items()}
        seen = _seen(directory)
        tally.count(plan, ended, seen)
        consoles = _plant(self.plant, directory, seen, _consoles(plan, directory, read))
        found = [("survivor", text) for text in survivors]
        found += _ending_problems(plan, ended, seen, directory, self.supervisor.complaints)
        found += judge_round(plan, seen, directory, consoles, alive=ended == "answered", drain=self.drain)
        if found:
            self.supervisor.end()
            kill_strangers(self.supervisor)
        else:
            shutil.rmtree(directory)
        return [Finding(number=number, kind=kind, text=text) for kind, text in found]

    def _survivors(self, directory: Path, patience: float) -> list[str]:
        deadline = time.monotonic() + patience
        while True:
            kin = dict(_living_kin(directory / "nursery"))
            strangers = [pid for pid in self.supervisor.strangers() if pid not in kin]
            if not (kin or strangers) or time.monotonic() > deadline:
                return [
                    *(f"{kind}: {described(pid)}" for pid, kind in kin.items()),
                    *(described(pid) for pid in strangers),
                ]
            time.sleep(0.005)


def _living_kin(nursery: Path) -> Iterator[tuple[int, str]]:
    """Find who lives of those that ranks have left behind: pid and kind."""
    for entry in nursery.iterdir():
        start, _, kind = entry.read_text().partition(" ")
        if start and is_alive(int(entry.name), int(start)):
            yield int(entry.name), kind


def judge_round(
    plan: RoundPlan,
    seen: dict[str, Any],
    directory: Path,
    consoles: tuple[bytes | None, bytes | None],
    *,
    alive: bool,
    drain: bool,
) -> Iterator[tuple[str, str]]:
    """Give what is wrong with a round's results and its output.

    Args:
        plan: What it was to be.
        seen: What the supervisor has seen; empty if it died.
        directory: Where its files are.
        consoles: What came through to the two consoles, where that is known.
        alive: The supervisor has lived through it.
        drain: If it has not, teed streams have to be as complete as others.
    """
    groups = {each["name"]: each for each in seen.get("groups", ())}
    yield from _unexplained(plan, seen)
    # A console that was too slow, or the like, has said so.
    missed = any("missed" in text for _, text in seen.get("notices", ()))
    streams: list[Written] = []
    whole = everybody = alive and not missed
    for group in plan.groups:
        journals = [read_journal(journal_path(directory, group.name, rank)) for rank in range(len(group.ranks))]
        if (about := groups.get(group.name)) is not None:
            yield from ((kind, f"group {group.name}: {text}") for kind, text in judge_group(group, about, journals))
        logs = directory / f"{group.name}logs"
        of_ranks = written_streams(group, journals, logs, alive=alive)
        started = about is not None and not about["cancelled"]
        mine = [stream for both in of_ranks for stream in both]
        for stream in mine:
            drained = alive or drain or stream.way == "file"
            yield from judge_file(stream, kept=group.keeps_logs and started, drained=drained)
        yield from judge_filtered(group, mine, logs, complete=whole and started)
        everybody = everybody and started
        streams += mine
    yield from judge_consoles(plan, streams, consoles, complete=everybody)


def _unexplained(plan: RoundPlan, seen: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Give what was said in a round that nothing explains."""
    failing = any(kind in {"full", "closed"} for kind in plan.consoles)
    slow = "stuck" in plan.consoles or any(group.drain_timeout < 1 for group in plan.groups)
    forks = any(group.method == "fork" for group in plan.groups)
    for kind, text in seen.get("notices", ()):
        explained = (
            (kind == "log of aioelastic" and "missed" in text and "failed" in text and failing)
            or (kind == "log of aioelastic" and "missed" in text and slow)
            or (kind == "log of aioelastic" and "guard" in text and seen.get("guard killed"))
            or (kind == "DeprecationWarning" and "fork" in text and forks)
        )
        if not explained:
            yield "notice", f"{kind}: {text}"
    yield from (("leak", text) for text in seen.get("leaks", ()))
    yield from (("error", text) for text in seen.get("errors", ()))
    yield from (("hang", text) for text in seen.get("hangs", ()))


def _ending_problems(
    plan: RoundPlan, ended: str, seen: dict[str, Any], directory: Path, complaints: Path
) -> Iterator[tuple[str, str]]:
    if ended == "hung" or (ended == "died" and plan.death is None and not seen):
        stacks = directory / "stacks"
        yield "hang", f"the supervisor {ended}: {stacks.read_text() if stacks.exists() else 'no stacks'}"
    said = complaints.read_text(errors="replace")
    complaints.write_text("")
    # The fork server and its children say so when they lose who was telling them what to do.
    last = said.rstrip().rpartition("\n")[2]
    if said and not (ended == "died" and last.startswith(("EOFError", "BrokenPipeError", "ConnectionResetError"))):
        yield "notice", f"on the supervisor's stderr: {said}"


def _seen(directory: Path) -> dict[str, Any]:
    try:
        seen: dict[str, Any] = json.loads((directory / "seen.json").read_text())
    except FileNotFoundError:
        return {}
    return seen


def _consoles(plan: RoundPlan, directory: Path, read: dict[int, bytes]) -> tuple[bytes | None, bytes | None]:
    def content(index: int) -> bytes | None:
        if index in read:
            return read[index]
        path = directory / f"console{index + 1}"
        if index and plan.consoles == ("object", "same"):
            path = directory / "console1.raw"
        return path.read_bytes() if path.is_file() else None

    return content(0), content(1)


def _plant(
    faults: Sequence[str], directory: Path, seen: dict[str, Any], consoles: tuple[bytes | None, bytes | None]
) -> tuple[bytes | None, bytes | None]:
    """Spoil what is going to be judged, to see that it is noticed; give the consoles so spoiled."""
    logs = sorted(path for path in directory.glob("*logs/*/attempt_0/*/std*.log") if path.stat().st_size)
    if "byte" in faults:
        data = bytearray(logs[0].read_bytes())
        data[len(data) // 2] ^= 1
        logs[0].write_bytes(data)
    if "short" in faults:
        logs[-1].write_bytes(logs[-1].read_bytes()[:-1])
    if "filtered" in faults:
        for path in directory.glob("*logs/*/attempt_0/filtered*.log"):
            path.write_bytes(path.read_bytes()[1:])
    for group in seen.get("groups", ()):
        _spoil(faults, group.get("result"))
    if "console" in faults:
        first, second = (content and content.partition(b"\n")[2] for content in consoles)
        return first, second
    return consoles


def _spoil(faults: Sequence[str], result: dict[str, Any] | None) -> None:
    if result is None:
        return
    if "code" in faults:
        for each in result["exits"].values():
            each["code"] = 77
    if "value" in faults:
        result["values"] = dict.fromkeys(result["exits"], "planted")
    if "failure" in faults:
        result["failures"] = {}
