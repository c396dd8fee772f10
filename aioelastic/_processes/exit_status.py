"""What the system tells of a child that has ended: status and usage, also when somebody else took the status."""

import fcntl
import os
import resource
import struct

from aioelastic._processes.rank_process import ExitStatus

# struct pidfd_info and PIDFD_GET_INFO, include/uapi/linux/pidfd.h; exit_code after reaping since Linux 6.15.
_PIDFD_INFO = struct.Struct("=QQ11Ii")
_PIDFD_GET_INFO = 0xC0000000 | _PIDFD_INFO.size << 16 | 0xFF << 8 | 11
_PIDFD_INFO_EXIT = 1 << 3


def reap(pid: int, handle: int) -> ExitStatus:
    """Reap a child that has ended.

    Args:
        pid: Its process id.
        handle: Its pidfd, which is readable: the child has ended.

    Returns:
        Its status; with ``reaped_elsewhere`` when another part of the program was faster.
    """
    try:
        # By handle first: if somebody else reaped it, its number may be another child's by now.
        os.waitid(os.P_PIDFD, handle, os.WEXITED | os.WNOHANG | os.WNOWAIT)
        _, wait_status, usage = os.wait4(pid, os.WNOHANG)
    except ChildProcessError:
        return ExitStatus(code=_kept_exit_code(handle), reaped_elsewhere=True)
    # The kernel counts what a process shared with its parent before its exec: a figure below our peak would be ours.
    own_peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return ExitStatus(
        code=os.waitstatus_to_exitcode(wait_status),
        peak_memory=usage.ru_maxrss * 1024 if usage.ru_maxrss > own_peak else None,
        cpu_time=usage.ru_utime + usage.ru_stime,
    )


def _kept_exit_code(handle: int) -> int | None:
    """Read the exit code that the kernel keeps for a handle after the process was reaped."""
    info = bytearray(_PIDFD_INFO.pack(_PIDFD_INFO_EXIT, *[0] * 13))
    try:
        fcntl.ioctl(handle, _PIDFD_GET_INFO, info)
    except OSError:
        return None
    mask, *_, wait_status = _PIDFD_INFO.unpack(info)
    return os.waitstatus_to_exitcode(wait_status) if mask & _PIDFD_INFO_EXIT else None
