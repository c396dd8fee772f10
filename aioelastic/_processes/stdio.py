"""What a rank gets as its standard output and error."""

import asyncio
import contextlib
import os
import stat


def stdio_argument(number: int, descriptor: int | None, opened: contextlib.ExitStack) -> int | None:
    """Give the value for the start call: a descriptor, or ``None`` where the supervisor's own is inherited.

    A program with asyncio streams on its own stdout has made it non-blocking, and the flag belongs to the open file,
    so a rank that inherits it would lose output (EAGAIN). Clearing it would change the supervisor's world: a pipe or a
    terminal is opened a second time instead, with flags of its own. Regular files do not know the flag, and sockets
    cannot be opened again.

    Args:
        number: 1 or 2.
        descriptor: What to hand over, or ``None`` to inherit.
        opened: Closes what was opened here, after the start.
    """
    if descriptor is not None:
        return descriptor
    try:
        mode = os.fstat(number).st_mode
        is_standard = os.get_inheritable(number)
    except OSError:
        is_standard = False
    if not is_standard:
        # Closed in the supervisor, and perhaps a file or socket of its own by now. Without any, the next file that the
        # rank opens would become its stdout.
        return asyncio.subprocess.DEVNULL
    if os.get_blocking(number) or not (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode)):
        return None
    try:
        fresh = os.open(f"/dev/fd/{number}", os.O_WRONLY | os.O_NOCTTY | os.O_CLOEXEC)
    except OSError:
        return None
    opened.callback(os.close, fresh)
    return fresh


def stdio_descriptor(number: int, descriptor: int | None, opened: contextlib.ExitStack) -> int:
    """Give what `stdio_argument` gives, but always a descriptor that can be handed over.

    Args:
        number: 1 or 2.
        descriptor: What to hand over, or ``None`` to inherit.
        opened: Closes what was opened here, after the start.
    """
    chosen = stdio_argument(number, descriptor, opened)
    if chosen is None:
        return number
    if chosen == asyncio.subprocess.DEVNULL:
        chosen = os.open(os.devnull, os.O_WRONLY | os.O_CLOEXEC)
        opened.callback(os.close, chosen)
    return chosen
