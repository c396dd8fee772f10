"""What the process of a function rank is made into before any code of the user's runs in it.

A spawned rank gets its session, descriptors and environment from exec. A forked one is a copy of the supervisor, and
one of the fork server's a copy of that: both put everything right by themselves, here.
"""

# ruff: noqa: PLC0415 - what only some ranks need is imported by those

import _signal  # type: ignore[import-not-found]  # see _reset_signals
import fcntl
import io
import os
import signal
import sys
from typing import Final, NamedTuple

from aioelastic._child.token import TOKEN_VARIABLE, show_tokens

_PYTHON_IGNORES: Final = {signal.SIGPIPE, getattr(signal, "SIGXFSZ", signal.SIGPIPE)}
"""What every Python ignores, to raise an exception instead."""

_IONBF: Final = 2
"""C's word for a stream without a buffer (``stdio.h``, the same in glibc, musl and macOS)."""


class World(NamedTuple):
    """What a rank's process is to be."""

    ignored: tuple[int, ...]
    """Signals that stay ignored; all others get their default dispositions, as Python has them."""

    stdio: tuple[int, int] | None = None
    """Descriptors to become its stdout and stderr; ``None`` where exec has set them, and has opened the session."""

    environment: dict[str, str] | None = None
    """All its variables; ``None`` where exec has set them."""

    cwd: str | None = None
    """Its working directory; ``None`` for the one it is in."""

    unbuffered: bool = False
    """The interpreter was started with ``-u``, so C's streams have no buffers."""

    go: int | None = None
    """Descriptor to read from first: the supervisor binds the process to CPUs until something comes."""


def enter_world(world: World) -> None:
    """Make this process what a rank is."""
    if world.go is not None:
        if not os.read(world.go, 1):
            os._exit(1)  # the supervisor is gone, or has given this rank up
        os.close(world.go)
    # Before the session: from there on it is signalled like any rank, and must not ignore what a fork server ignores.
    _reset_signals(world.ignored)
    if world.stdio is not None:
        os.setsid()
        _take_stdio(world.stdio)
    if world.environment is not None:
        os.environ.clear()
        os.environ.update(world.environment)
        if TOKEN_VARIABLE in world.environment:
            show_tokens(world.environment[TOKEN_VARIABLE])
    if world.cwd is not None:
        os.chdir(world.cwd)
    _leave_event_loop()
    _open_streams()
    if not world.unbuffered:
        _unbuffer_c_streams()


def lifted(descriptor: int) -> int:
    """Move a descriptor out of the way of the standard streams; an exec closes it then.

    In a supervisor without standard streams anything may have their numbers.
    """
    if descriptor > 2:  # noqa: PLR2004 - stderr
        os.set_inheritable(descriptor, False)
        return descriptor
    higher = fcntl.fcntl(descriptor, fcntl.F_DUPFD_CLOEXEC, 3)
    os.close(descriptor)
    return higher


def _take_stdio(descriptors: tuple[int, int]) -> None:
    # Out of the way of the numbers 0 to 2 first: one of those may be where the other is to go.
    copies = [fcntl.fcntl(each, fcntl.F_DUPFD_CLOEXEC, 3) for each in descriptors]
    nothing = os.open(os.devnull, os.O_RDWR)
    copies.insert(0, fcntl.fcntl(nothing, fcntl.F_DUPFD_CLOEXEC, 3))
    for number, each in enumerate(copies):
        os.dup2(each, number)
        os.close(each)
    for given in {nothing, *descriptors} - {0, 1, 2}:
        os.close(given)


def _reset_signals(ignored: tuple[int, ...]) -> None:
    # By what `signal` is made of: that looks up each number it takes or gives in an enumeration, which touches hundreds
    # of pages, and a forked process has to copy each one first.
    if "faulthandler" in sys.modules:
        # It would go on believing that its handlers are in place.
        import faulthandler

        faulthandler.disable()
    # The supervisor's loop is woken by this descriptor, which a forked rank shares with it.
    signal.set_wakeup_fd(-1)
    for number in set(range(1, signal.NSIG)) - {signal.SIGKILL, signal.SIGSTOP}:
        if number in ignored or number in _PYTHON_IGNORES:
            disposition = _signal.SIG_IGN
        elif number == signal.SIGINT:
            disposition = signal.default_int_handler
        else:
            disposition = _signal.SIG_DFL
        try:  # noqa: SIM105 - contextlib is one more import for each rank
            _signal.signal(number, disposition)
        except OSError:
            pass  # real-time signals that the C library keeps for itself
    _signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _leave_event_loop() -> None:
    """Forget the loop that was running when the process was forked: it is the supervisor's."""
    events = sys.modules.get("asyncio.events")
    if events is not None:
        events._set_running_loop(None)  # noqa: SLF001 - asyncio's own word for those who switch loops
        policy = events._event_loop_policy  # noqa: SLF001 - asking for it in public would make one
        if sys.version_info < (3, 12) and hasattr(policy, "_local"):
            # As newer Pythons do by themselves. Given to whoever asks, the supervisor's loop would be run once more.
            policy._local = type(policy._local)()  # noqa: SLF001 - see above


class _WholeWrites(io.FileIO):
    """A descriptor whose writes take everything: a raw one stops in the middle when a signal handler runs."""

    def write(self, data: "bytes | memoryview") -> int:  # type: ignore[override]  # what a text stream passes
        """Write all of it."""
        view = memoryview(data).cast("B")
        total = len(view)
        while view:
            # None of a descriptor that somebody has made non-blocking.
            written = super().write(view)
            if written is None:
                raise BlockingIOError(11, "a stream of the rank was made non-blocking and is full", total - len(view))
            view = view[written:]
        return total


def _open_streams() -> None:
    """Give Python its streams anew, without buffers: SIGTERM ends a process without emptying any.

    A handler of SIGTERM could empty them, but Python runs handlers between two of its own instructions only, and a
    rank that hangs in C code (a collective operation whose partner has died) would not end before SIGKILL.
    """
    for number, name in ((1, "stdout"), (2, "stderr")):
        before = getattr(sys, f"__{name}__")
        raw = _WholeWrites(number, "w", closefd=False)
        raw.name = f"<{name}>"
        stream = io.TextIOWrapper(
            raw,  # as Python's own unbuffered streams are made
            encoding=getattr(before, "encoding", None) or "utf-8",
            errors="backslashreplace" if number == 2 else getattr(before, "errors", None),  # noqa: PLR2004 - stderr
            write_through=True,
        )
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)


def _unbuffer_c_streams() -> None:
    """Do the same for what C code prints, and drop what a forked copy has inherited: its original prints that."""
    try:
        import ctypes

        library = ctypes.CDLL(None)
        purge = getattr(library, "__fpurge", None) or library.fpurge
        for name in ("stdout", "stderr"):
            stream = ctypes.c_void_p.in_dll(library, name if sys.platform == "linux" else f"__{name}p")
            purge(stream)
            library.setvbuf(stream, None, _IONBF, ctypes.c_size_t(0))
    except (ImportError, AttributeError, ValueError, OSError):
        pass  # a C library without these names: its streams are emptied when the rank ends by itself
