"""One function rank: a process of `multiprocessing`, its session, and the value it sends."""

import asyncio
import os
from collections.abc import Callable, Collection
from typing import Any

from aioelastic._base.aliases import StartMethod
from aioelastic._base.private_descriptors import close_private, keep_private
from aioelastic._base.threads import in_thread
from aioelastic._errors.error_handler import text_of
from aioelastic._processes.function_starts import FunctionStart, StartedFunction, start_function
from aioelastic._processes.members import Member
from aioelastic._processes.rank_process import ExitStatus
from aioelastic._processes.session import signal_session
from aioelastic._processes.value_receiver import ValueReceiver


class FunctionRank:
    """A function's process (`RankProcess`).

    Attributes:
        local_rank_id: Its number within its group.
        has_value: The function has returned, and its value is here.
        value: What it returned, or ``None``.
    """

    def __init__(self, started: StartedFunction, receiver: ValueReceiver, local_rank_id: int) -> None:
        self.local_rank_id = local_rank_id
        self.has_value = False
        self.value: Any = None
        self._child = started.child
        self._feed = started.feed
        self._receiver = receiver
        self._ending: asyncio.Task[ExitStatus] | None = None

    @property
    def pid(self) -> int:
        """The process id, which is also the number of the session and the process group."""
        return self._child.pid

    def has_exited(self) -> bool:
        """Ask the kernel whether the process has ended."""
        return self._child.has_exited()

    async def wait_status(self) -> ExitStatus:
        """Wait for the process to end, and for its value to be unpickled."""
        status = await self._child.wait_status()
        if self._ending is None:
            # Not in the task: the end of the event loop cancels a task before its first step, too.
            self._receiver.close()
            if self._feed is not None:
                self._feed.close()
            self._ending = asyncio.get_running_loop().create_task(
                self._with_value(status), name=f"aioelastic: value of rank {self.local_rank_id}"
            )
        await asyncio.wait([self._ending])
        if self._ending.cancelled():
            self._receiver.discard()
            return status._replace(problem="The event loop ended before its value was unpickled.")
        return self._ending.result()

    def signal_group(self, number: int, members: Collection[Member]) -> int:
        """Signal the process group, and the given members outside it."""
        return signal_session(self._child, number, members)

    def __repr__(self) -> str:
        state = "exited" if self.has_exited() else "running"
        return f"<FunctionRank {self.local_rank_id}, pid {self.pid}, {state}>"

    async def _with_value(self, status: ExitStatus) -> ExitStatus:
        try:
            if status.code != 0:
                return status._replace(report=self._receiver.report)
            problem = self._receiver.problem()
            if not problem:
                problem = self._unpickle() if self._receiver.is_small else await in_thread(self._unpickle)
            return status._replace(problem=problem, report=self._receiver.report)
        finally:
            self._receiver.discard()

    def _unpickle(self) -> str:
        """Make the value; give the problem if that fails."""
        try:
            self.value = self._receiver.unpickle()
        except BaseException as error:  # noqa: BLE001 - a SystemExit raised by unpickling must not end this program
            return f"Its value does not unpickle here ({text_of(error)})."
        self.has_value = True
        return ""


async def start_function_rank(
    method: StartMethod,
    describe: Callable[[int], FunctionStart],
    local_rank: int,
    on_exit: Callable[[], None],
) -> FunctionRank:
    """Start a function rank.

    Args:
        method: How.
        describe: Gives what is started, from the descriptor for its value.
        local_rank: Its number within its group.
        on_exit: Called on the loop as soon as the exit is seen, before anything else is done about it.

    Raises:
        OSError: The system refused; nothing was started.
    """
    reading, writing = os.pipe()
    receiver = ValueReceiver(reading)
    keep_private(writing)
    try:
        started = await start_function(method, describe(writing), on_exit)
    except BaseException:
        receiver.discard()
        raise
    finally:
        close_private(writing)
    return FunctionRank(started, receiver, local_rank)
