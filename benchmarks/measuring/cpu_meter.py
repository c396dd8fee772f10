"""How much CPU a program uses that waits for its ranks."""

import ctypes
import time
from collections.abc import Collection

import psutil


class CpuMeter:
    """What this process, and others that work for it, use from now on.

    Args:
        ranks: Pids of the ranks: all other children work for this process.
    """

    def __init__(self, ranks: Collection[int]) -> None:
        self._helpers = [each.pid for each in psutil.Process().children() if each.pid not in ranks]
        self._others = self._helpers_time()
        # Last here and first below, so that asking is not measured.
        self._begin, self._own = time.monotonic(), time.process_time()

    def figures(self) -> dict[str, float]:
        """Give the milliseconds of CPU per second: ``all`` of it, and that of ``helpers`` if there are any."""
        own, seconds = time.process_time() - self._own, time.monotonic() - self._begin
        others = self._helpers_time() - self._others
        figures = {"all": (own + others) * 1e3 / seconds}
        return {**figures, "helpers": others * 1e3 / seconds} if self._helpers else figures

    def _helpers_time(self) -> float:
        return sum(map(_cpu_time, self._helpers))


def _cpu_time(pid: int) -> float:
    """Give the seconds of CPU that a process has used: to the nanosecond, where /proc has ticks of 10 ms."""
    clock = ctypes.c_int()
    if ctypes.CDLL(None).clock_getcpuclockid(pid, ctypes.byref(clock)):
        raise ProcessLookupError(pid)
    return time.clock_gettime(clock.value)
