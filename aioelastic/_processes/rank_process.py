"""What the supervision knows of one rank: a process with an exit, and a group that can be signalled."""

from collections.abc import Collection, Mapping
from typing import NamedTuple, Protocol

from aioelastic._processes.members import Member


class ExitStatus(NamedTuple):
    """How one process ended, as far as the system told.

    Attributes:
        code: The exit code, minus the signal's number for a death by signal, or ``None`` where another part of the
            program took the status and the kernel kept no copy.
        reaped_elsewhere: Another part of the program reaped the process.
        peak_memory: Largest resident size of it or of a child it waited for (bytes), or ``None`` where not known.
        cpu_time: Processor time of it and of the children it waited for (seconds), or ``None`` where not known.
        problem: Why it is a failure in spite of code 0 (a function rank without a value), or ``""``.
        report: The record of its exception where it has no error file, as the bytes of one, or ``b""``.
    """

    code: int | None
    reaped_elsewhere: bool = False
    peak_memory: int | None = None
    cpu_time: float | None = None
    problem: str = ""
    report: bytes = b""


class RankProcess(Protocol):
    """One rank of a group; a command or a function behind the same few methods."""

    @property
    def local_rank_id(self) -> int:
        """The rank's number within its group."""
        ...

    @property
    def pid(self) -> int:
        """The leader's process id, which is also the number of its session and process group."""
        ...

    def has_exited(self) -> bool:
        """Ask the kernel, not the event loop, whether the leader has ended."""
        ...

    async def wait_status(self) -> ExitStatus:
        """Wait for the leader's end, whoever still holds its pipes; any number of tasks may."""
        ...

    def signal_group(self, number: int, members: Collection[Member]) -> int:
        """Send a signal to the rank's process group and to those of its members that left the group.

        Returns:
            The signal that the leader got: it may have to be another one.
        """
        ...


class ProcessTable(Protocol):
    """The system's processes, as far as they belong to ranks."""

    def members(self, leaders: Mapping[int, bool], groups: Collection[str] = ()) -> list[Member]:
        """Find what is alive of some ranks, zombies left out, in one pass over all processes (blocking).

        Args:
            leaders: Leader's pid -> whether that leader has exited.
            groups: Tokens of the groups whose descendants count although they have left the leaders' sessions.
        """
        ...

    async def wait_gone(self, pids: Collection[int]) -> None:
        """Wait until the processes have ended, as far as they can be awaited; look at the table again afterwards."""
        ...
