"""Whether a group that failed is run again, and when (pure)."""

import math
from dataclasses import dataclass
from typing import NamedTuple

from aioelastic._contexts.checks import checked_seconds
from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long an agent waits before it runs a group that failed again.

    The first restart waits for ``first`` seconds, each further one ``factor`` times as long, up to ``cap``. Each delay
    is made a little shorter by chance, so that many agents do not come back at the same moment.

    Attributes:
        first: Seconds before the first restart; 0 restarts at once, always.
        factor: What each delay is multiplied by for the next one; 1 or more.
        cap: Seconds that no delay is longer than.
        jitter: By which part of itself a delay may be shorter, from 0 to 1.

    Raises:
        SpecificationError: A number out of its range.

    Example:
        >>> from aioelastic import Backoff
        >>> backoff = Backoff(first=1, factor=2, cap=5, jitter=0)
        >>> [backoff.delay(restarts) for restarts in (1, 2, 3, 4)]
        [1.0, 2.0, 4.0, 5.0]
    """

    first: float = 0.02
    factor: float = 4.0
    cap: float = 60.0
    jitter: float = 0.1

    def __post_init__(self) -> None:
        for name in ("first", "factor", "cap", "jitter"):
            if math.isinf(checked_seconds(f"{name} of Backoff", getattr(self, name))):
                raise SpecificationError(f"{name} of Backoff is infinite: give a number that can be waited for")
        if self.factor < 1:
            raise SpecificationError(f"factor of Backoff is {self.factor}: give 1 or more, or the delays would shrink")
        if self.jitter > 1:
            raise SpecificationError(f"jitter of Backoff is {self.jitter}: give a part from 0 to 1")

    def delay(self, restarts: int, chance: float = 0.0) -> float:
        """Give the delay before a restart.

        Args:
            restarts: Which restart in a row it is, from 1.
            chance: A number from 0 (not shortened) to 1 (as short as may be), by chance.

        Returns:
            Seconds.
        """
        try:
            plain = min(float(self.first) * float(self.factor) ** (restarts - 1), float(self.cap))
        except OverflowError:
            plain = float(self.cap) if self.first else 0.0
        return plain * (1 - self.jitter * chance)


@dataclass(frozen=True, slots=True, kw_only=True)
class RestartPolicy:
    """When a group that failed is run again.

    Attributes:
        max_restarts: How many restarts there may be.
        backoff: How long each waits.
        healthy_after: Seconds that an attempt has to run before its failure counts as the first one again; ``None``
            for never.
    """

    max_restarts: int
    backoff: Backoff
    healthy_after: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.max_restarts, bool) or not isinstance(self.max_restarts, int):
            raise SpecificationTypeError(f"max_restarts must be an int, not {type(self.max_restarts).__name__}")
        if self.max_restarts < 0:
            raise SpecificationError(f"max_restarts is {self.max_restarts}: give 0 for none, or more")
        if not isinstance(self.backoff, Backoff):
            raise SpecificationTypeError(f"backoff must be a Backoff, not {type(self.backoff).__name__}")
        if self.healthy_after is not None:
            checked_seconds("healthy_after", self.healthy_after)

    def after_failure(self, used: int, lifetime: float, chance: float) -> "Restart | None":
        """Decide what follows a failed attempt.

        Args:
            used: Restarts of the budget that are used up.
            lifetime: Seconds from the attempt's start to its failure.
            chance: A number from 0 to 1, by chance.

        Returns:
            The restart, or ``None`` when the budget is spent.
        """
        if self.healthy_after is not None and lifetime >= self.healthy_after:
            used = 0
        if used >= self.max_restarts:
            return None
        return Restart(used + 1, self.backoff.delay(used + 1, chance))


class Restart(NamedTuple):
    """A restart that is due.

    Attributes:
        used: Restarts of the budget that are used up with it.
        delay: Seconds to wait before it.
    """

    used: int
    delay: float
