"""Binding processes to CPUs as planned, each before it runs a line of its own."""

import logging
import os
from collections.abc import Callable, Mapping
from functools import partial

from aioelastic._numa.cpu_lists import format_cpu_list
from aioelastic._numa.errors import NumaBindingError
from aioelastic._numa.machine import read_machine
from aioelastic._numa.nvml import query_nvml
from aioelastic._numa.options import NumaOptions
from aioelastic._numa.policy import GroupBinding, plan_group
from aioelastic._numa.words import describe_applied

logger = logging.getLogger("aioelastic")


class Binder:
    """Binds the ranks of one group, or leaves them as they are where that is allowed to happen.

    Args:
        plan: What is decided.
        options: What was asked for.

    Attributes:
        applied: Rank -> the CPUs it was bound to, as the kernel says; ranks left unbound are not in it.
    """

    def __init__(self, plan: GroupBinding, options: NumaOptions) -> None:
        self.applied: dict[int, frozenset[int]] = {}
        self._plan = plan
        self._options = options
        for rank in plan.ranks:
            if rank.error is not None:
                logger.warning("%s; it runs unbound", rank.error)

    def binding_of(self, rank: int) -> Callable[[int], None] | None:
        """Give what binds a rank's process, or ``None`` when it is to be left as it is."""
        return partial(self.bind, rank) if rank in self._plan.cpus else None

    def bind(self, rank: int, pid: int) -> None:
        """Bind a rank's process, which waits for that and has one thread.

        Raises:
            NumaBindingError: The system refused it, and there is no fall-back.
        """
        chosen = self._plan.cpus[rank]
        try:
            os.sched_setaffinity(pid, chosen)
            self.applied[rank] = frozenset(os.sched_getaffinity(pid))
        except (OSError, AttributeError) as error:
            refusal = self._refusal(rank, chosen, error)
            if not self._options.should_fall_back_if_binding_fails:
                raise refusal from error
            logger.warning("%s; it runs unbound", refusal)
            return
        logger.info("%s; %s", self._plan.ranks[rank], describe_applied(chosen, self.applied[rank]))

    def _refusal(self, rank: int, chosen: frozenset[int], error: OSError | AttributeError) -> NumaBindingError:
        why = (error.strerror or str(error)) if isinstance(error, OSError) else "it cannot bind processes"
        return NumaBindingError(
            f"the system refuses CPUs {format_cpu_list(chosen)} ({why})",
            mode=self._options.affinity_mode,
            local_rank=rank,
            remedy="allow sched_setaffinity in the sandbox, or set should_fall_back_if_binding_fails",
        )


def plan_binding(options: NumaOptions, nprocs: int, environ: Mapping[str, str]) -> Binder:
    """Look at the machine and decide on the CPUs of each rank (blocking).

    Args:
        options: What is asked for.
        nprocs: The number of ranks.
        environ: The variables that hide accelerators.

    Raises:
        NumaBindingError: A rank cannot be bound, and there is no fall-back.
    """
    allowance = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
    machine = read_machine(environ, allowance, nvml=query_nvml)
    plan = plan_group(machine.topology, machine.devices, options, nprocs, machine.allowance, notes=machine.notes)
    logger.info("%s", plan.explanation)
    return Binder(plan, options)
