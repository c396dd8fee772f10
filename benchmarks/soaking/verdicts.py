"""Whether a group's result is explained by what its ranks, its caller and its killer did (pure)."""

import math
import signal
from collections.abc import Iterator, Sequence
from typing import Any

from soaking.entries import Entries
from soaking.journal import ENDING
from soaking.plans import COMMAND, GroupPlan

_CLOCK = 0.05
"""Seconds by which two looks at the clock of two programs may be in the wrong order."""


def judge_group(plan: GroupPlan, seen: dict[str, Any], journals: Sequence[Entries]) -> Iterator[tuple[str, str]]:
    """Give what is wrong with a group, each as a word for its kind and a text.

    Args:
        plan: What it was to be.
        seen: What its caller has seen.
        journals: What its ranks have noted.
    """
    yield from (("error", text) for text in seen["errors"])
    result = seen.get("result")
    if result is None:
        if not seen["cancelled"] and not seen["errors"]:
            yield "result", "there is none"
        return
    if result["survivors"]:
        yield "result", f"survivors are claimed: {result['survivors']}"
    group = _Group(plan, seen, journals)
    for rank in range(len(plan.ranks)):
        if str(rank) in result["exits"]:
            for kind, text in group.judge(rank):
                yield kind, f"rank {rank}: {text}; {group.about(rank)}"
        else:
            yield "exit", f"rank {rank} has none; {group.about(rank)}"


class _Group:
    def __init__(self, plan: GroupPlan, seen: dict[str, Any], journals: Sequence[Entries]) -> None:
        self._plan = plan
        self._seen = seen
        self._journals = journals
        result = seen["result"]
        self._exits: dict[str, dict[str, Any]] = result["exits"]
        self._failures: dict[str, dict[str, Any]] = result["failures"]
        self._values: dict[str, str] = result["values"]

    def about(self, rank: int) -> str:
        """Tell all that is known of a rank."""
        exit_, failure = self._exits.get(str(rank)), self._failures.get(str(rank))
        kills = [each for each in self._seen["kills"] if each["rank"] == rank]
        return (
            f"exit {exit_}, failure {failure}, value {self._values.get(str(rank))}, {self._journals[rank]}, "
            f"{self._plan.ranks[rank]}, kills {kills}, stops {self._seen['stops']}"
        )

    def judge(self, rank: int) -> Iterator[tuple[str, str]]:
        """Say what is wrong with one rank."""
        exit_ = self._exits[str(rank)]
        pid = self._journals[rank].pid
        if pid not in {0, exit_["pid"]} or self._seen["pids"][str(rank)] != exit_["pid"]:
            yield "exit", "another pid"
        code = exit_["code"]
        name = signal.Signals(-code).name if code is not None and code < 0 else None
        if exit_["signal"] != name or exit_["reaped elsewhere"] or exit_["start"] > exit_["end"]:
            yield "exit", "it contradicts itself"
        verdict = {"ENDED": self._ended, "KILLED": self._killed, "STOPPED": self._stopped}.get(exit_["cause"])
        if verdict is None or not verdict(rank, code, exit_["end"]):
            yield "exit", "it is not explained"
        yield from self._judge_failure(rank, code, exit_)
        yield from self._judge_value(rank, code, exit_["cause"])

    def _own_code(self, rank: int) -> int | None:
        """Give the exit code by which a rank was ending by itself, if it was."""
        plan = self._plan.ranks[rank]
        if self._journals[rank].phase != ENDING:
            return None
        return {"value": 0, "raise": 1, "kill": -plan.number}.get(plan.ending, plan.number)

    def _kills(self, rank: int) -> set[int]:
        return {-each["signal"] for each in self._seen["kills"] if each["rank"] == rank}

    def _ended(self, rank: int, code: int, end: float) -> bool:
        del end
        # The interpreter's own word for a stderr that does not take the traceback.
        deaf_console = code == 120 and self._plan.ranks[rank].ending == "raise" and self._plan.way(rank, 1) == "inherit"
        return code >= 0 and (code == self._own_code(rank) or (deaf_console and self._own_code(rank) == 1))

    def _killed(self, rank: int, code: int, end: float) -> bool:
        del end
        return code < 0 and (code == self._own_code(rank) or code in self._kills(rank))

    def _stopped(self, rank: int, code: int, end: float) -> bool:
        if self._stop_time(rank) > end + _CLOCK:
            return False
        signals = {-self._plan.death_signal, *(-each["signal"] for each in self._seen["stops"])} - {-signal.SIGKILL}
        if code in signals or code == self._own_code(rank) or code in self._kills(rank):
            return True
        # Before it has opened its session it is killed, since it may ignore what its parent ignores.
        young = self._plan.method in {"fork", "forkserver"} and not self._journals[rank].phase
        return code == -signal.SIGKILL and (young or (end + _CLOCK >= self._kill_time(rank) and self._needs_kill(rank)))

    def _stop_time(self, rank: int) -> float:
        """Tell from when on the library had a reason to signal a rank."""
        called: list[float] = [each["time"] for each in self._seen["stops"]]
        return min([*called, *self._other_failures(rank)] or [math.inf])

    def _needs_kill(self, rank: int) -> bool:
        """Tell whether a rank may have survived all signals but SIGKILL, or got none with the time to die of it."""
        stops = self._seen["stops"]
        graces = [each["grace"] for each in stops] or [self._plan.shutdown_timeout]
        hasty = min(graces) < 0.5 or any(each["signal"] == signal.SIGKILL for each in stops)
        return hasty or self._plan.ranks[rank].deaf or not self._journals[rank].phase

    def _kill_time(self, rank: int) -> float:
        """Tell from when on the library had a reason to send SIGKILL."""
        deadlines: list[float] = [
            each["time"] + (0 if each["signal"] == signal.SIGKILL else each["grace"]) for each in self._seen["stops"]
        ]
        deadlines += [each + self._plan.shutdown_timeout for each in self._other_failures(rank)]
        return min(deadlines or [math.inf])

    def _other_failures(self, rank: int) -> list[float]:
        return [self._exits[each]["end"] for each in self._failures if each != str(rank)]

    def _judge_failure(self, rank: int, code: int, exit_: dict[str, Any]) -> Iterator[tuple[str, str]]:
        plan = self._plan.ranks[rank]
        raised = plan.ending == "raise" and self._own_code(rank) == code
        without_value = self._plan.method != COMMAND and plan.ending == "_exit" and self._own_code(rank) == code
        failure = self._failures.get(str(rank))
        if failure is None:
            late = exit_["cause"] == "KILLED" and self._stop_time(rank) <= exit_["end"] + _CLOCK
            if exit_["cause"] != "STOPPED" and (code != 0 or without_value) and not late:
                yield "failure", "it has none"
            return
        # It may be stopped after its exception, before its end.
        early = plan.ending == "raise" and self._journals[rank].phase == ENDING
        if (exit_["cause"] == "STOPPED" and not early) or (code == 0 and not without_value):
            yield "failure", "it has one"
        if (failure["code"], failure["pid"]) != (code, exit_["pid"]):
            yield "failure", "it is not that of the exit"
        recorded = self._plan.keeps_logs or self._plan.method != COMMAND
        if raised and recorded and f"as planned: {plan.seed}" not in failure["message"]:
            yield "failure", "it does not have the exception"

    def _judge_value(self, rank: int, code: int, cause: str) -> Iterator[tuple[str, str]]:
        value = self._values.get(str(rank))
        plan = self._plan.ranks[rank]
        expected = None
        if self._plan.method != COMMAND and self._own_code(rank) == 0 and plan.ending != "_exit":
            expected = "as expected" if plan.ending == "value" else "None"
        if value != expected and not (value is None and (code != 0 or cause == "STOPPED")):
            yield "value", f"it should be {expected}"
