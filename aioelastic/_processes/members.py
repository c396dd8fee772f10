"""Which processes belong to ranks: the members of their sessions, and whoever bears their tokens.

Nothing but the standard library is imported here: the orphan guard works with this, too.
"""

# ruff: noqa: PTH110, PTH208 - pathlib would be one more import for the guard

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from aioelastic._child.token import TOKEN_VARIABLE
from aioelastic._processes.process_handles import handle_has_exited, open_handle

_LOOKS = 5
"""Looks until nothing found counts as nothing there, although other processes ended during each of them."""

_EXEC_LOOKS = 100
"""Looks, a millisecond apart, at processes that are just executing a program: a busy machine may hold one up there."""

_READ_BYTES = 64 * 1024
"""Bytes of an environment that are read at once."""

_HAS_ENVIRONMENTS: Final = os.path.exists("/proc/self/environ")
"""Whether the system shows the variables of processes; macOS has no /proc."""

_VARIABLE: Final = f"{TOKEN_VARIABLE}=".encode()


class Member(NamedTuple):
    """A process that belongs to a rank."""

    pid: int
    """Its process id."""

    session: int
    """The rank's session, if it is in that; otherwise 0."""

    token: str = ""
    """The rank's token, if it is not in the session; otherwise ``""``."""

    began: int = 0
    """When it began, if it is not in the session, in ticks of the kernel's clock; otherwise 0.

    By that, not by its token, it is known again: while it executes another program it shows no variables.
    """

    def check(self) -> None:
        """See that the number still belongs to the process that was found.

        Raises:
            ProcessLookupError: It does not.
        """
        if self.session:
            if os.getsid(self.pid) != self.session:
                raise ProcessLookupError(self.pid)
        elif _began(self.pid) != self.began:
            raise ProcessLookupError(self.pid)


def list_pids() -> list[int]:
    """Give the numbers of all processes."""
    try:
        return [int(name) for name in os.listdir("/proc") if name.isdigit()]
    except FileNotFoundError:
        pass
    try:
        import psutil  # noqa: PLC0415 - 20 ms, and only for macOS; the guard goes without
    except ImportError:
        return []
    return psutil.pids()


def find_members(
    list_pids: Callable[[], Iterable[int]], leaders: Mapping[int, bool], groups: Collection[str]
) -> list[Member]:
    """Find what is alive of some ranks, zombies left out, in one pass over all processes.

    A session's number cannot be given away while it has members, so matching it is safe, but for one case: all members
    are gone, and the number came to a stranger that opened a session of its own. Then the leader's number is alive
    although our leader has exited, and the session is left alone.

    Args:
        list_pids: Gives the numbers of all processes.
        leaders: Leader's pid -> whether that leader has exited.
        groups: Tokens of the groups whose descendants are looked for outside the sessions, too.
    """
    others: set[int] = set()
    dead: set[int] = set()
    executing: set[int] = set()
    looks = 0
    while looks < _LOOKS or (executing and looks < _EXEC_LOOKS):
        if executing:
            time.sleep(0.001)
            executing.clear()
        looks += 1
        known = len(dead)
        # The new ones first: what keeps replacing itself by a fork is there for a moment only.
        pids = sorted(set(list_pids()) - others, key=lambda pid: (pid in dead, -pid))
        found = _look(pids, leaders, groups, others, dead, executing)
        if found or (len(dead) == known and not executing):
            break
    strangers = {member.pid for member in found if leaders.get(member.pid, False)}
    return [member for member in found if member.session not in strangers]


def _look(
    pids: Iterable[int],
    leaders: Mapping[int, bool],
    groups: Collection[str],
    others: set[int],
    dead: set[int],
    executing: set[int],
) -> list[Member]:
    """Look once at some processes.

    Args:
        pids: Their numbers.
        leaders: See `find_members`.
        groups: See `find_members`.
        others: Gets those that belong to nobody here, and will not.
        dead: Gets those that had ended: each may have forked after the numbers were listed.
        executing: Gets those that have no variables yet, or none any more.
    """
    found: list[Member] = []
    for pid in pids:
        try:
            member = _member(pid, leaders, groups)
        except PermissionError:
            others.add(pid)  # another user's
        except InterruptedError:
            executing.add(pid)
        except OSError:  # gone, or there is no descriptor left to ask with
            dead.add(pid)
        else:
            if member is None:
                others.add(pid)
            else:
                found.append(member)
    return found


def _member(pid: int, leaders: Mapping[int, bool], groups: Collection[str]) -> Member | None:
    """Tell whether a process belongs to a rank.

    Raises:
        ProcessLookupError: It is gone, or a zombie.
        InterruptedError: It is just executing another program, or ending.
    """
    session = os.getsid(pid)
    if session in leaders:
        member = Member(pid, session)
    elif groups and session not in {0, os.getsid(0)} and _HAS_ENVIRONMENTS:
        if not _tokens_among(groups, pid):
            return None
        began = _began(pid)
        # Once more: until then the number may have come to another process.
        if not (tokens := _tokens_among(groups, pid)):
            return None
        member = Member(pid, 0, tokens[0], began)
    else:
        # Threads of the kernel have no session; what left a rank's has one of its own, and cannot come into ours.
        return None
    if not is_alive(member):
        raise ProcessLookupError(pid)
    return member


def _tokens_among(groups: Collection[str], pid: int) -> list[str]:
    return [token for token in tokens_of(pid) if token.partition(".")[0] in groups]


def tokens_of(pid: int) -> tuple[str, ...]:
    """Give the tokens that a process bears.

    Raises:
        ProcessLookupError: It is gone, or a zombie, or has no variables at all.
        InterruptedError: It is just executing another program, and has no variables yet; or it is ending just now.
        OSError: It cannot be asked.
    """
    environment = _environment(f"/proc/{pid}/environ") or _environment_of_threads(pid)
    tokens: list[str] = []
    for entry in environment.split(b"\0") if _VARIABLE in environment else ():
        if entry.startswith(_VARIABLE):
            tokens += entry[len(_VARIABLE) :].decode("ascii", "replace").split(",")
    return tuple(tokens)


def _environment(path: str) -> bytes:
    """Read an environment; empty for a thread that has ended, and of which the kernel still has the number."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except ProcessLookupError:
        return b""
    except FileNotFoundError as error:
        raise ProcessLookupError(path) from error
    try:
        pieces = []
        while piece := os.read(descriptor, _READ_BYTES):
            pieces.append(piece)
        return b"".join(pieces)
    finally:
        os.close(descriptor)


def _environment_of_threads(pid: int) -> bytes:
    """Ask the other threads: of a process whose main thread has ended the kernel shows nothing else."""
    try:
        threads = [int(each) for each in os.listdir(f"/proc/{pid}/task")]
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error
    for thread in threads:
        if thread != pid and (environment := _environment(f"/proc/{pid}/task/{thread}/environ")):
            return environment
    if _is_executing(pid):
        raise InterruptedError(pid)
    raise ProcessLookupError(pid)


def _is_executing(pid: int) -> bool:
    """Tell whether a process of which no variables were seen has them soon, or by now: it executes a program.

    The kernel sets the place for them up a moment later (``env_start``, ``env_end`` of proc_pid_stat(5)). One that is
    ending looks the same until it is a zombie; one that has no variables has an empty place.
    """
    try:
        fields = _fields(pid)
    except OSError:
        return False
    start, end = fields[47:49]
    return fields[0] not in {b"Z", b"X"} and (end == b"0" or start != end)


def _began(pid: int) -> int:
    """Tell when a process began (``starttime`` of proc_pid_stat(5)).

    Raises:
        ProcessLookupError: It is gone.
    """
    try:
        return int(_fields(pid)[19])
    except FileNotFoundError as error:
        raise ProcessLookupError(pid) from error


def _fields(pid: int) -> list[bytes]:
    """Give the fields of a process's ``stat`` from its state on; the name before may hold anything."""
    with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123 - pathlib is one more import
        return file.read().rpartition(b")")[2].split()


def is_alive(member: Member) -> bool:
    """Tell whether a member lives; a zombie does not.

    Raises:
        ProcessLookupError: The process is gone, or its number belongs to somebody else now.
    """
    with _held(member) as handle:
        return not (_is_zombie(member.pid) if handle is None else handle_has_exited(handle))


def signal_member(member: Member, number: int) -> None:
    """Send a signal to a member, and to nobody who has its number by now."""
    with contextlib.suppress(ProcessLookupError, PermissionError), _held(member) as handle:
        if handle is None:
            os.kill(member.pid, number)
        else:
            signal.pidfd_send_signal(handle, number)


@contextlib.contextmanager
def _held(member: Member) -> Iterator[int | None]:
    """Hold a process by its handle, checked after that was opened.

    Raises:
        ProcessLookupError: The process is gone, or its number belongs to somebody else now.
    """
    handle = open_handle(member.pid)
    try:
        member.check()
        yield handle
    finally:
        if handle is not None:
            os.close(handle)


def _is_zombie(pid: int) -> bool:
    try:
        import psutil  # noqa: PLC0415 - only where there are no handles; the guard goes without
    except ImportError:
        return False
    try:
        return psutil.Process(pid).status() in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.Error:
        return True
    except OSError:
        return False  # no descriptor left to ask with; getsid has just found it
