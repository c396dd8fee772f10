"""Reading the journals of ranks."""

from dataclasses import dataclass
from pathlib import Path

from soaking.journal import BEGUN, BROKEN, DONE, PHASE, PID, SLOTS, START


@dataclass(frozen=True, slots=True, kw_only=True)
class Entries:
    """What stands in a journal.

    Attributes:
        pid: The rank's pid, or 0 if its program did not come to run.
        start: When that process started, in the kernel's own words.
        begun: Records that it began to write to each stream.
        done: Records that it has written.
        phase: The last phase that it entered.
        broken: Streams, as bits, that were refused.
    """

    pid: int = 0
    start: int = 0
    begun: tuple[int, int] = (0, 0)
    done: tuple[int, int] = (0, 0)
    phase: int = 0
    broken: int = 0


def journal_path(directory: Path, group: str, rank: int) -> Path:
    """Say where a rank's journal is."""
    return directory / f"{group}{rank}.journal"


def read_journal(path: Path) -> Entries:
    """Read a rank's journal, which it may be writing."""
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return Entries()
    if len(data) < 8 * SLOTS:
        return Entries()
    slots = memoryview(data).cast("Q")
    if not slots[PHASE]:
        return Entries()
    return Entries(
        pid=slots[PID],
        start=slots[START],
        begun=(slots[BEGUN], slots[BEGUN + 1]),
        done=(slots[DONE], slots[DONE + 1]),
        phase=slots[PHASE],
        broken=slots[BROKEN],
    )
