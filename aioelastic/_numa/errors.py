"""What is raised when ranks cannot be bound to CPUs."""

from typing import Any

from aioelastic._errors.exceptions import AioelasticError


class NumaBindingError(AioelasticError, RuntimeError):
    """A rank cannot be bound to CPUs as asked: nothing can be chosen, or the system refused it.

    It is a `RuntimeError` too, as the same failure is in torch. With ``NumaOptions.should_fall_back_if_binding_fails``
    there is a warning in its place, and the rank runs on the CPUs that its supervisor may use. Options that are wrong
    by themselves are a `SpecificationError`.

    Args:
        problem: What is so, in words.
        mode: The affinity mode asked for, or ``""`` where it makes no difference.
        local_rank: The rank, or ``None`` for the whole group.
        remedy: What would help, in words.

    Attributes:
        problem: What is so, in words.
        mode: The affinity mode asked for, as text.
        local_rank: The rank, or ``None`` for the whole group.
        remedy: What would help, in words.
    """

    def __init__(self, problem: str, *, mode: str = "", local_rank: int | None = None, remedy: str = "") -> None:
        self.problem = problem
        self.mode: str = str(mode)
        self.local_rank = local_rank
        self.remedy = remedy
        who = "the ranks" if local_rank is None else f"rank {local_rank}"
        asked = f" (NUMA mode {self.mode})" if self.mode else ""
        advice = f"; {remedy}" if remedy else ""
        super().__init__(f"{who} cannot be bound to CPUs{asked}: {problem}{advice}")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.problem, self.mode, self.local_rank, self.remedy)


def _rebuild(problem: str, mode: str, local_rank: int | None, remedy: str) -> NumaBindingError:
    return NumaBindingError(problem, mode=mode, local_rank=local_rank, remedy=remedy)
