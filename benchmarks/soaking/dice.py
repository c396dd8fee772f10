"""The dice: from a seed and a round's number to the round's plan."""

import random
import signal
from dataclasses import replace

from soaking.plans import COMMAND, LEAVING, ActionPlan, DeathPlan, GroupPlan, KinPlan, RankPlan, RoundPlan

WAIT, WAIT_CLOSE, CLOSE = "wait to the end", "wait, then close", "close"
CANCEL_START, CANCEL_WAIT, CANCEL_CLOSE = "cancel the start", "cancel a wait", "cancel a close"
TWO_CLOSES, RAISE, TWO_WAITS = "two closes at once", "leave by an exception", "two waits at once"
CLOSE_START, TIMEOUT, FORWARD = "close while it starts", "time out with all", "forward a signal"
ACTIONS = (
    *(WAIT, WAIT, WAIT, WAIT_CLOSE, CLOSE, CANCEL_START, CANCEL_WAIT, CANCEL_CLOSE),
    *(TWO_CLOSES, RAISE, TWO_WAITS, CLOSE_START, TIMEOUT, FORWARD),
)
"""What callers do; `WAIT` and `TWO_WAITS` only where the group ends by itself."""

_STOPS = (signal.SIGTERM, signal.SIGTERM, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGQUIT)
_ENDS = (signal.SIGKILL, signal.SIGTERM, signal.SIGSEGV, signal.SIGABRT, signal.SIGUSR2)
_CONSOLES = ("file", "file", "pipe", "pipe", "full", "closed", "object", "stuck")


def plan_round(seed: int, number: int, *, guard: bool, loops: tuple[str, ...] = ("asyncio", "uvloop")) -> RoundPlan:
    """Throw the dice for one round.

    Args:
        seed: The run's seed.
        number: The round's number.
        guard: Include what only the orphan guard and the sweep of descendants can end.
        loops: The event loops that there are.
    """
    dice = random.Random(f"{seed}/{number}")
    dying = guard and dice.random() < 0.2
    consoles = dice.choice(_CONSOLES), dice.choice((*_CONSOLES, "same", "same"))
    groups = tuple(
        _group(dice, f"g{index}_", consoles, guard=guard) for index in range(dice.choice((1, 1, 1, 2, 2, 3)))
    )
    if dying:
        groups = tuple(_lasting(dice, replace(each, guarded=True)) for each in groups)
    moment = dice.choice((0.1, 0.2, 0.4, 0.8)) * dice.uniform(0.2, 1)
    return RoundPlan(
        number=number,
        loop=loops[number % len(loops)],
        consoles=consoles,
        groups=groups,
        death=DeathPlan(kind=dice.choice(("kill", "exit", "crash")), delay=moment) if dying else None,
        guard_dies=moment if guard and not dying and dice.random() < 0.05 else 0,
    )


def _lasting(dice: random.Random, group: GroupPlan) -> GroupPlan:
    """Have a group often be there still when its supervisor dies."""
    ranks = tuple(replace(each, ending="linger") if dice.random() < 0.4 else each for each in group.ranks)
    action = replace(group.action, kind=CLOSE, delay=1.0) if dice.random() < 0.7 else group.action
    # A wait is for groups that end by themselves.
    return group if action.kind in {WAIT, TWO_WAITS} else replace(group, ranks=ranks, action=action)


def _group(dice: random.Random, name: str, consoles: tuple[str, str], *, guard: bool) -> GroupPlan:
    method = dice.choice((COMMAND, COMMAND, COMMAND, "spawn", "fork", "forkserver"))
    count = dice.choice((1, 2, 2, 3, 4, 8)) if method == COMMAND else dice.choice((1, 2, 2, 3, 4))
    if method == "spawn":
        count = min(count, 3)
    mood = dice.choice(("calm", "calm", "mixed", "wild"))
    guarded = guard and dice.random() < 0.9
    ranks = tuple(_rank(dice, mood, count, method, leaving=guarded) for _ in range(count))
    action = _action(dice, ranks)
    ways = dice.choice(((3, 0), (0, 3), (0, 3), (0, 0), (1, 2), (2, 1), None))
    redirects = tuple(dice.randrange(4) if ways is None else ways[0] for _ in ranks)
    tees = tuple(dice.randrange(4) if ways is None else ways[1] for _ in ranks)
    return GroupPlan(
        name=name,
        method=method,
        ranks=ranks,
        redirects=tuple(each | _away_from(consoles) for each in redirects),
        tees=tees,
        shown=tuple(sorted(dice.sample(range(count), dice.randint(0, count)))) if dice.random() < 0.15 else None,
        filtered=dice.random() < 0.4,
        keeps_logs=dice.random() < 0.85,
        death_signal=int(dice.choice(_STOPS)),
        shutdown_timeout=dice.choice((0.3, 0.6, 1.0)),
        drain_timeout=dice.choice((0.3, 2.0, 2.0)),
        guarded=guarded,
        action=action,
    )


def _away_from(consoles: tuple[str, str]) -> int:
    """Keep ranks from inheriting a console that nobody reads: they would wait there for ever."""
    first = consoles[0] == "stuck"
    second = consoles[1] == "stuck" or (consoles[1] == "same" and first)
    return first | second << 1


def _rank(dice: random.Random, mood: str, count: int, method: str, *, leaving: bool) -> RankPlan:
    trouble = {"calm": 0.05, "mixed": 0.4, "wild": 0.9}[mood]
    ending, number = _ending(dice, method) if dice.random() < trouble else ("value", dice.choice((0, 10, 1000)))
    if ending == "value" and dice.random() < 0.05:
        number = 3_000_000
    talkative = dice.random() < 0.6
    most = dice.choice((4, 40, 400, 1600)) // count if talkative else 0
    records = dice.randint(0, most), dice.randint(0, most // 2)
    deaf = dice.random() < trouble / 4 and not (ending == "kill" and number == signal.SIGTERM)
    kills = dice.random() < trouble / 2
    return RankPlan(
        seed=dice.randrange(1 << 30),
        records=records,
        rest=0.02 if most <= 40 and dice.random() < 0.3 else 0.0,
        closes_at=dice.randint(0, max(records)) if dice.random() < 0.1 else 1 << 30,
        deaf=deaf,
        stops=dice.random() < trouble / 10,
        kin=tuple(_kin(dice, leaving=leaving) for _ in range(dice.choice((1, 1, 2)) if dice.random() < 0.2 else 0)),
        ending=ending,
        number=number,
        pause=dice.choice((0.3, 0.6) if kills else (0.0, 0.0, 0.1, 0.3)),
        kill=int(dice.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))) if kills else 0,
        kill_after=dice.choice((0.05, 0.1, 0.2, 0.4)) * dice.uniform(0.5, 1),
    )


def _ending(dice: random.Random, method: str) -> tuple[str, int]:
    kind = dice.choice(("exit", "raise", "_exit", "kill", "kill", "linger", "linger", "value"))
    if kind == "exit":
        return kind, dice.choice((0, 1, 3, 255))
    if kind == "_exit":
        return kind, dice.choice((1, 7) if method == COMMAND else (0, 7))
    if kind == "kill":
        return kind, int(dice.choice(_ENDS))
    return kind, dice.choice((0, 10, 1000))


def _kin(dice: random.Random, *, leaving: bool) -> KinPlan:
    kind = dice.choice(("stay", "group", *LEAVING) if leaving else ("stay", "stay", "group"))
    return KinPlan(kind=kind, deaf=dice.random() < 0.3, holds=dice.random() < 0.4, executes=dice.random() < 0.4)


def _action(dice: random.Random, ranks: tuple[RankPlan, ...]) -> ActionPlan:
    # A rank that fails for certain ends its group; being killed from outside does not, if it is deaf or quicker.
    fails = any(each.ends and not each.succeeds for each in ranks)
    ends = fails or all(each.ends for each in ranks)
    kind = dice.choice(ACTIONS)
    while kind in {WAIT, TWO_WAITS} and not ends:
        kind = dice.choice(ACTIONS)
    return ActionPlan(
        kind=kind,
        steps=dice.choice((1, 2, 3, 5, 8, 13, 21, 34, 55, 89)),
        delay=dice.uniform(0, 0.5),
        signal=int(dice.choice((0, 0, signal.SIGTERM, signal.SIGKILL, signal.SIGHUP))),
        grace=dice.choice((-1.0, -1.0, 0.0, 0.2, 0.5)),
        second_delay=dice.choice((0.0, 0.0, 0.01, 0.1)),
        second_grace=dice.choice((0.0, 0.1, 0.3)),
    )
