"""What a rank does about an exception that nobody caught."""

# logging and traceback cost a rank 15 ms, and most ranks never fail.
# ruff: noqa: PLC0415

import os
from types import TracebackType
from typing import Any, Final, Literal

from aioelastic._errors.error_files import ERROR_FILE_VARIABLE, read_error_file, write_first, write_over

_OURS: Final = __file__.rpartition("_errors")[0]
"""The folder of the package."""


class ErrorHandler:
    """Writes and passes on error files on behalf of `record`.

    Nothing that goes wrong here ever reaches the caller, whose own exception matters more: it is logged to
    the logger ``aioelastic``. The path comes from the variable ``TORCHELASTIC_ERROR_FILE``, read each time.
    Make a subclass and pass it to `record` to report elsewhere as well.

    The methods are those of the class of this name in ``torch.distributed.elastic.multiprocessing.errors``.

    Example:
        >>> handler = get_error_handler()
        >>> handler.initialize()
        >>> handler.record_exception(ValueError("x"))
    """

    def initialize(self) -> None:
        """Have Python print the stacks of all threads to stderr on SIGSEGV, SIGABRT and their like.

        Leaves ``faulthandler`` alone when it is on already. A stderr without a descriptor (a notebook's, a
        test's, ``None``) is replaced by the stderr the process began with.
        """
        import faulthandler
        import sys

        if faulthandler.is_enabled():
            return
        for stream in (sys.stderr, sys.__stderr__):
            if stream is None:
                continue
            try:
                faulthandler.enable(stream, all_threads=True)
            except Exception:  # noqa: BLE001, S112 - a stand-in for stderr may fail in any way it likes
                continue
            return

    def record_exception(self, e: BaseException) -> None:
        """Write an exception into this process's error file, unless one is there already.

        Type, text and traceback are recorded with causes, contexts, notes and the members of groups, even if
        ``str()`` of the exception fails.

        Args:
            e: The exception.
        """
        path = os.environ.get(ERROR_FILE_VARIABLE)
        if not path:
            _log("debug", "%s is not set: %s is recorded nowhere", ERROR_FILE_VARIABLE, type(e).__name__)
            return
        try:
            if not write_first(path, exception_data(e)):
                _log("debug", "%s exists: %s came later and is not recorded", path, type(e).__name__)
        except Exception as error:  # noqa: BLE001 - the user's exception must go on
            _log("warning", "could not record %s in %s: %s", type(e).__name__, path, text_of(error))

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> bool:
        """Copy the error file of a rank of ours over this process's own, for whoever supervises this process.

        Args:
            rootcause_error_file: The rank's error file.
            error_code: The rank's exit code, put into the copy unless 0: a rank killed by a signal could not.

        Returns:
            Whether this process's error file now says so.
        """
        path = os.environ.get(ERROR_FILE_VARIABLE)
        if not path:
            _log("debug", "%s is not set: %s is passed on nowhere", ERROR_FILE_VARIABLE, rootcause_error_file)
            return False
        found = read_error_file(rootcause_error_file)
        if found is None or not found.message:
            problem = found.problem if found else "does not exist"
            _log("warning", "cannot pass on the error file %s: it %s", rootcause_error_file, problem)
            return False
        if error_code:
            self.override_error_code_in_rootcause_data(rootcause_error_file, found.data, error_code)
        try:
            write_over(path, found.data)
        except Exception as error:  # noqa: BLE001 - the user's exception must go on
            _log("warning", "could not pass on %s as %s: %s", rootcause_error_file, path, text_of(error))
            return False
        return True

    def override_error_code_in_rootcause_data(
        self, rootcause_error_file: str, rootcause_error: dict[str, Any], error_code: int = 0
    ) -> None:
        """Put an exit code into the data of an error file, as ``["message"]["errorCode"]``.

        A message that is plain text has no place for it: that is logged and the data stays as it is.

        Args:
            rootcause_error_file: The path, for the log.
            rootcause_error: The data; changed in place.
            error_code: The exit code.
        """
        message = rootcause_error.get("message")
        if isinstance(message, dict):
            message["errorCode"] = error_code
        else:
            _log("warning", "no place for exit code %s in the message of %s", error_code, rootcause_error_file)


def get_error_handler() -> ErrorHandler:
    """Give the handler that `record` uses when it is given none.

    Returns:
        A new `ErrorHandler`.
    """
    return ErrorHandler()


def exception_data(e: BaseException) -> dict[str, Any]:
    """Describe an exception in the nested form of an error file.

    Args:
        e: The exception; nothing it does when asked for its text makes this fail.

    Returns:
        The JSON object.

    Example:
        >>> exception_data(ValueError("x"))["message"]["message"]
        'ValueError: x'
    """
    import time

    now = time.time_ns()
    extra = {
        "py_callstack": _callstack(e),
        "timestamp": str(now // 1_000_000_000),
        "timestamp_ns": str(now),
    }
    return {"message": {"message": text_of(e), "extraInfo": extra}}


def text_of(e: BaseException) -> str:
    """Name an exception with its text, even if asking for that fails.

    Args:
        e: The exception.

    Example:
        >>> text_of(KeyError("x"))
        "KeyError: 'x'"
    """
    name = type(e).__name__
    try:
        text = str(e)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - recorded, not raised: the rank would end with 0
        return f"{name}: <its str() failed with {type(error).__name__}>"
    return f"{name}: {text}" if text else name


def _callstack(e: BaseException) -> str:
    import traceback

    frames_of_user = _without_callers(e.__traceback__)
    try:
        # Groups are cut to 15 members by default, and the one that matters may be the 16th.
        described = traceback.TracebackException(
            type(e), e, frames_of_user, compact=True, max_group_width=100, max_group_depth=20
        )
        return "".join(described.format())
    except Exception as error:  # noqa: BLE001 - an exception with hostile attributes is still recorded
        problem = f"<formatting the exception failed with {type(error).__name__}>"
    frames = "".join(traceback.format_tb(frames_of_user))
    return f"Traceback (most recent call last):\n{frames}{text_of(e)}\n{problem}\n"


def _without_callers(traceback: TracebackType | None) -> TracebackType | None:
    """Leave out our own frames that have called the function: whoever looks for a fault begins to read at the top."""
    first = traceback
    while first is not None and first.tb_frame.f_code.co_filename.startswith(_OURS):
        first = first.tb_next
    return first or traceback


def _log(level: Literal["debug", "warning"], text: str, *args: object) -> None:
    import logging

    try:  # noqa: SIM105 - contextlib is one more import for each rank
        getattr(logging.getLogger("aioelastic"), level)(text, *args)
    except Exception:  # noqa: BLE001, S110 - a log handler of the user's may fail; nowhere is left to say it
        pass
