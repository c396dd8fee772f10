"""Numbers the library rests on, each with where it comes from."""

import signal
from typing import Final

DEATH_SIGNAL: Final = signal.SIGTERM
"""What a rank gets first; the same as torch's launcher and every service manager."""

SHUTDOWN_TIMEOUT: Final = 30.0
"""Seconds between the first signal and SIGKILL; torch's default."""

DRAIN_TIMEOUT: Final = 5.0
"""Seconds for the logs to end after a rank's exit: a grandchild may hold the pipe for ever."""

REAP_TIMEOUT: Final = 5.0
"""Seconds a process may take to die of SIGKILL before it is called unkillable (uninterruptible sleep)."""

GUARD_GRACE: Final = 2.0
"""Seconds between signal and SIGKILL at most, when it is the guard that ends the ranks: nobody waits for their work."""

FORK_SERVER_TIMEOUT: Final = 120.0
"""Seconds for the fork server to fork a rank: the first time it imports what the program has it preload."""

EXEC_TIMEOUT: Final = 120.0
"""Seconds for the exec step to become the command: the disk that holds the interpreter may be slow, but not stuck."""

CHUNK_BYTES: Final = 64 * 1024
"""Bytes that are read or written in one go where nothing else is known."""

PIECE_BYTES: Final = 256 * 1024
"""Bytes moved from a rank's pipe into its file in one go, and the most that the loop hands on in one go.

Each go is a hop to a thread and back, which costs as much as the work on 64 KiB. Twice as many gain little more, and
the loop's delay grows with them: ``benchmarks/figures/throughput.py`` shows both for the value that stands here.
"""

PIPE_BYTES: Final = 1024 * 1024
"""Size asked for a rank's pipe; the largest an unprivileged process gets by default (pipe-max-size)."""

LINE_LIMIT: Final = 64 * 1024
"""Bytes of one line on the console or in a filtered copy before it is cut into marked pieces."""

PARTIAL_LINE_DELAY: Final = 0.2
"""Seconds of silence after which a line without an end (a prompt) is shown."""

MAX_ARG_STRLEN: Final = 32 * 4096
"""Bytes of one argument or variable, its NUL included: 32 pages, on the common pages of 4 KiB (execve(2))."""
