"""One failed rank: what is known about its end."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

from aioelastic._base import signals
from aioelastic._errors.error_files import ErrorFile, parse_error_file, read_error_file
from aioelastic._errors.log_tail import is_empty_log, log_tail, printable

NOT_AVAILABLE: Final = "<N/A>"
"""What stands for a missing error file or signal; PyTorch's word."""

NO_MESSAGE: Final = "<NONE>"
"""The message in the data of a rank without an error file; PyTorch's word."""

_HOW_TO: Final = (
    "There is no traceback: decorate a command's main function with aioelastic.record (a function is recorded anyway), "
    "or redirect or tee its stderr (redirects=Std.ERR; --tee 2 on the command line) to see its last lines here."
)

_HOW_TO_BESIDE_A_LOG: Final = (
    "There is no traceback, and its stderr log is empty: decorate a command's main function with aioelastic.record "
    "(a function is recorded anyway)."
)


@dataclass(frozen=True, slots=True)
class ProcessFailure:
    """A rank that failed, and why as far as anybody knows.

    The files are read once, when it is made: make it when the rank has ended and its log is complete. No
    file in any state makes that fail. It travels by ``pickle``; nothing is read again on the other side.

    Its form and the words ``"<N/A>"`` and ``"<NONE>"`` are those of the class of this name in
    ``torch.distributed.elastic.multiprocessing.errors``; there ``message`` may be a dict, here it is text.

    Attributes:
        local_rank: The rank.
        pid: Its process id.
        exitcode: Its exit code, negative for the signal that ended it, or ``None`` when another part of the
            program took the status.
        error_file: The path of its error file, or ``"<N/A>"`` when it wrote none.
        stderr_file: The log of its stderr, ``""`` when it went to the console.
        started_at: When the rank was started, in seconds since 1970, if the supervisor knows.
        exited_at: When the rank ended, in seconds since 1970, if the supervisor knows.
        report: What the rank told of its exception in place of an error file, as the bytes of one.
        reason: What the supervisor knows about the failure beyond the exit code (no value came back, say).
        error_file_data: The JSON object of the error file; ``{"message": "<NONE>"}`` without a usable one.
        message: Why it failed: the error file's innermost message, else the signal, reason or exit code
            followed by what is wrong with the error file, and by the end of the stderr log or, where nothing else
            is known, how to get a traceback.
        timestamp: When it failed, in seconds since 1970: from the error file if that is within the rank's life as
            far as it is known, else ``exited_at``, else now.

    Example:
        >>> failure = ProcessFailure(local_rank=0, pid=123, exitcode=-9, error_file="")
        >>> failure.message, failure.signal_name(), failure.error_file
        ('Signal 9 (SIGKILL) received by PID 123', 'SIGKILL', '<N/A>')
    """

    local_rank: int
    pid: int
    exitcode: int | None
    error_file: str
    stderr_file: str = field(default="", kw_only=True)
    started_at: float | None = field(default=None, kw_only=True)
    exited_at: float | None = field(default=None, kw_only=True)
    reason: str = field(default="", kw_only=True)
    report: bytes = field(default=b"", kw_only=True, repr=False)
    error_file_data: dict[str, Any] = field(init=False)
    message: str = field(init=False)
    timestamp: float = field(init=False)
    _traceback: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        written = read_error_file(self.error_file)
        found = written if written is not None or not self.report else parse_error_file(self.report)
        data = found.data if found is not None and "message" in found.data else {"message": NO_MESSAGE}
        values = {
            "error_file": self.error_file if written is not None else NOT_AVAILABLE,
            "error_file_data": data,
            "message": (found.message if found is not None else "") or self._message_without(found),
            "timestamp": self._time(found),
            "_traceback": found.traceback if found is not None else "",
        }
        for name, value in values.items():
            # A frozen dataclass has no other way to fill in what follows from its arguments.
            object.__setattr__(self, name, value)

    @property
    def traceback(self) -> str:
        """The traceback in the error file, or ``""``."""
        return self._traceback

    def signal_name(self) -> str:
        """Name the signal that ended the rank.

        Returns:
            A name such as ``"SIGKILL"``, or ``"<N/A>"`` when no signal did or nobody knows.
        """
        if self.exitcode is None or self.exitcode >= 0:
            return NOT_AVAILABLE
        return signals.signal_name(-self.exitcode)

    def timestamp_isoformat(self) -> str:
        """Say when the rank failed.

        Returns:
            The local time as ``2023-11-14_22:13:20``, with a fraction where one is known.
        """
        from datetime import datetime  # noqa: PLC0415 - 5 ms that only a report needs

        # Local and without a zone, as PyTorch writes it: it is compared with lines of the rank's own log.
        return datetime.fromtimestamp(self.timestamp).isoformat(sep="_")  # noqa: DTZ006 - see above

    def _time(self, found: ErrorFile | None) -> float:
        exited_at = self.exited_at
        recorded = None if found is None else found.timestamp
        if found is None or recorded is None:
            return exited_at if exited_at is not None else time.time()
        # A whole second is rounded down: taken as it is, a rank that failed late in a second would seem to come
        # before one that was killed early in it.
        latest = recorded if found.subsecond else recorded + 1
        if exited_at is not None and (recorded > exited_at or (not found.subsecond and latest > exited_at)):
            return exited_at
        if exited_at is not None and self.started_at is not None and latest < self.started_at:
            return exited_at
        return recorded

    def _message_without(self, found: ErrorFile | None) -> str:
        """Say what is known when no error file tells."""
        signalled = self.exitcode is not None and self.exitcode < 0
        lines = [self._ending()] if signalled or not self.reason else []
        if self.reason:
            lines.append(self.reason)
        if found is not None:
            lines.append(f"The error file {printable(self.error_file)} {found.problem}.")
        tail = log_tail(self.stderr_file)
        if tail:
            lines += [f"The last lines of {printable(self.stderr_file)}:", tail]
        elif not signalled and not self.reason:
            lines.append(_HOW_TO_BESIDE_A_LOG if is_empty_log(self.stderr_file) else _HOW_TO)
        return "\n".join(lines)

    def _ending(self) -> str:
        if self.exitcode is None:
            return (
                f"The exit status of PID {self.pid} was taken by another part of the program, "
                "so how it ended is unknown."
            )
        if self.exitcode < 0:
            return f"Signal {-self.exitcode} ({self.signal_name()}) received by PID {self.pid}"
        return f"PID {self.pid} ended with exit code {self.exitcode}."
