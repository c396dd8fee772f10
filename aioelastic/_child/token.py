"""The mark by which a rank's descendants are known wherever they go: a variable in their environment.

A program that is executed gets it as any variable, and the kernel shows it (``/proc/PID/environ``, proc(5)). For a
forked process that goes on as Python the kernel shows what its original was started with, so such a rank writes its
mark there itself, and its own forks inherit that.
"""

# ruff: noqa: PTH123 - pathlib is one more import for each rank

from typing import Final

TOKEN_VARIABLE: Final = "AIOELASTIC_RANK_TOKEN"  # noqa: S105 - no secret
"""Holds the tokens of a rank and of the ranks that it descends from, separated by commas."""

_ENV_START: Final = 47
"""Place of ``env_start`` after the program's name in ``/proc/PID/stat`` (proc(5): fields 50 and 51)."""


def show_tokens(tokens: str) -> None:
    """Have the kernel show the variable for this process, as if it had been started with it.

    It takes the place of what the environment began with. Nobody reads that any more when the process has set its
    variables anew. Where there is no such place the process and its forks are known by their session only.
    """
    mark = f"{TOKEN_VARIABLE}={tokens}".encode() + b"\0"
    try:
        with open("/proc/self/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
        start, end = (int(each) for each in fields[_ENV_START : _ENV_START + 2])
        if len(mark) > end - start:
            return
        with open("/proc/self/mem", "r+b", buffering=0) as memory:
            memory.seek(start)
            memory.write(mark)
    except (OSError, ValueError):
        pass  # no /proc, or a sandbox that keeps processes from writing their own memory in this way
