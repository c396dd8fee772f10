"""Whether a group is run again, and when."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._agent.restarts import Backoff, Restart, RestartPolicy
from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError

BACKOFFS = st.builds(
    Backoff,
    first=st.floats(0, 1e6),
    factor=st.floats(1, 1e6),
    cap=st.floats(0, 1e6),
    jitter=st.floats(0, 1),
)
CHANCES = st.floats(0, 1)


class TestBackoff:
    """How long a restart waits."""

    def test_delays_grow_to_the_cap(self) -> None:
        """Each is twice the one before, and none is longer than the cap."""
        backoff = Backoff(first=0.5, factor=2, cap=3, jitter=0)

        assert [backoff.delay(restarts) for restarts in range(1, 6)] == [0.5, 1, 2, 3, 3]

    @pytest.mark.parametrize(("chance", "delay"), [(0, 2), (0.5, 1.75), (1, 1.5)])
    def test_chance_makes_them_shorter(self, chance: float, delay: float) -> None:
        """By a part of themselves at the most, also at the cap."""
        assert Backoff(first=2, factor=2, cap=10, jitter=0.25).delay(1, chance) == delay
        assert Backoff(first=9, factor=2, cap=2, jitter=0.25).delay(3, chance) == delay

    @given(BACKOFFS, st.integers(1, 10**6), CHANCES)
    def test_every_delay_is_within_its_bounds(self, backoff: Backoff, restarts: int, chance: float) -> None:
        """However many restarts there were, a delay is a number from 0 to the cap."""
        delay = backoff.delay(restarts, chance)

        assert 0 <= delay <= backoff.cap
        assert delay <= backoff.delay(restarts, 0)
        assert delay <= backoff.delay(restarts + 1, chance) or math.isclose(delay, backoff.delay(restarts + 1, chance))

    @pytest.mark.parametrize("factor", [2.0, 10**9, 1e308])
    def test_numbers_that_are_too_large_are_the_cap(self, factor: float) -> None:
        """Growing without end is no reason to fail; and nothing, however often doubled, stays nothing."""
        assert Backoff(first=0.1, factor=factor, cap=7, jitter=0).delay(5000) == 7
        assert Backoff(first=0, factor=factor).delay(5000) == 0

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ({"first": -1}, SpecificationError),
            ({"first": "1"}, SpecificationTypeError),
            ({"factor": 0.5}, SpecificationError),
            ({"factor": math.nan}, SpecificationError),
            ({"cap": -0.1}, SpecificationError),
            ({"cap": math.inf}, SpecificationError),
            ({"cap": None}, SpecificationTypeError),
            ({"jitter": 1.5}, SpecificationError),
            ({"jitter": True}, SpecificationTypeError),
        ],
    )
    def test_numbers_out_of_range_are_refused(self, given: dict[str, Any], error: type[Exception]) -> None:
        """The error names the field."""
        with pytest.raises(error, match=f"{next(iter(given))} of Backoff"):
            Backoff(**given)


class TestPolicy:
    """What follows a failure."""

    def test_a_spent_budget_ends_the_run(self) -> None:
        """As many restarts as there may be, each after a longer wait, and then none."""
        policy = RestartPolicy(max_restarts=2, backoff=Backoff(first=1, factor=2, jitter=0))
        restarts, used = [], 0

        while restart := policy.after_failure(used, lifetime=1e9, chance=0.5):
            restarts.append(restart)
            used = restart.used

        assert restarts == [Restart(1, 1.0), Restart(2, 2.0)]

    def test_no_restarts_are_none_however_healthy(self) -> None:
        """A budget of nothing is not refilled to anything."""
        policy = RestartPolicy(max_restarts=0, backoff=Backoff(), healthy_after=1)

        assert policy.after_failure(0, lifetime=2, chance=0.5) is None

    @pytest.mark.parametrize(
        ("lifetime", "expected"),
        [(9.9, None), (10.0, Restart(1, 1.0)), (1e9, Restart(1, 1.0))],
    )
    def test_a_healthy_spell_refills_the_budget(self, lifetime: float, expected: Restart | None) -> None:
        """After it a failure is the first one again, in number and in delay."""
        policy = RestartPolicy(max_restarts=3, backoff=Backoff(first=1, jitter=0), healthy_after=10)

        assert policy.after_failure(3, lifetime, chance=0.5) == expected

    @pytest.mark.parametrize(
        ("given", "error"),
        [
            ({"max_restarts": -1}, SpecificationError),
            ({"max_restarts": True}, SpecificationTypeError),
            ({"max_restarts": 1.0}, SpecificationTypeError),
            ({"backoff": 1.0}, SpecificationTypeError),
            ({"healthy_after": -1}, SpecificationError),
            ({"healthy_after": math.nan}, SpecificationError),
            ({"healthy_after": "1"}, SpecificationTypeError),
        ],
    )
    def test_values_that_cannot_be_are_refused(self, given: dict[str, Any], error: type[Exception]) -> None:
        """The error names the value."""
        values: dict[str, Any] = {"max_restarts": 1, "backoff": Backoff()} | given

        with pytest.raises(error, match=next(iter(given))):
            RestartPolicy(**values)
