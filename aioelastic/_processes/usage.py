"""What a process has used, asked right after its exit and before anybody reaps it.

asyncio reaps with ``waitpid``, which throws the figures away. ``waitid`` can look without reaping, and the system call
(not the C library's function of that name, nor `os.waitid`) gives the resource usage with it: see ``waitid(2)``, notes.
"""

import ctypes
import os
import platform
import resource
from dataclasses import dataclass

_SYS_WAITID = {"x86_64": 247, "aarch64": 95, "riscv64": 95}.get(platform.machine())
"""The number of the system call (``asm/unistd.h``), or ``None`` where it is not known here."""

_SIGINFO_BYTES = 128


class _RUsage(ctypes.Structure):
    """``struct rusage``, sys/resource.h."""

    _fields_ = (("times", ctypes.c_long * 4), ("maxrss", ctypes.c_long), ("rest", ctypes.c_long * 13))


@dataclass(frozen=True, slots=True)
class Usage:
    """What a process, and the children it waited for, have used.

    Attributes:
        peak_memory: Largest resident size of any of them (bytes), or ``None`` when it was less than our own: the kernel
            counts what a process shared with its parent before its exec, so a smaller figure would be ours.
        cpu_time: Processor time, user and system (seconds).
    """

    peak_memory: int | None
    cpu_time: float


def usage_of_zombie(handle: int) -> Usage | None:
    """Give what a process has used that has exited and is not reaped, or ``None`` where that cannot be known.

    Args:
        handle: Its pidfd.
    """
    if _SYS_WAITID is None or not hasattr(os, "P_PIDFD"):
        return None
    usage = _RUsage()
    info = ctypes.create_string_buffer(_SIGINFO_BYTES)
    options = os.WEXITED | os.WNOHANG | os.WNOWAIT
    syscall = ctypes.CDLL(None, use_errno=True).syscall
    if syscall(_SYS_WAITID, os.P_PIDFD, handle, info, options, ctypes.byref(usage)) != 0 or not any(info.raw):
        return None
    seconds, microseconds = usage.times[0] + usage.times[2], usage.times[1] + usage.times[3]
    own = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    peak_memory = usage.maxrss * 1024 if usage.maxrss > own else None
    return Usage(peak_memory=peak_memory, cpu_time=seconds + microseconds / 1e6)
