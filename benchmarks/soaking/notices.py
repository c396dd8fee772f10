"""Everything that a program says of itself beside its results: warnings, logs, exceptions that nobody caught."""

import asyncio
import contextlib
import logging
import sys
import threading
import traceback
import warnings
from collections.abc import Iterator
from typing import Any


class Notices(logging.Handler):
    """Collects what is said, each as a word for its kind and a text."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take what is logged."""
        text = record.getMessage()
        if record.exc_info is not None and record.exc_info[1] is not None:
            text += "\n" + "".join(traceback.format_exception(record.exc_info[1]))
        self.said.append((f"log of {record.name}", text))

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """Listen to warnings, logs, and the hooks for what nobody catches."""
        root = logging.getLogger()
        hooks = sys.unraisablehook, threading.excepthook
        root.addHandler(self)
        with warnings.catch_warnings():
            warnings.simplefilter("always")
            warnings.showwarning = self._take_warning  # type: ignore[assignment]  # it takes any place
            sys.unraisablehook, threading.excepthook = self._take_unraisable, self._take_thread
            try:
                yield
            finally:
                sys.unraisablehook, threading.excepthook = hooks
                root.removeHandler(self)

    def take_context(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """Take what an event loop reports."""
        del loop
        error = context.get("exception")
        trace = "".join(traceback.format_exception(error)) if error is not None else ""
        self.said.append(("event loop", f"{context.get('message')}\n{context!r}\n{trace}"))

    def _take_warning(self, message: Warning | str, category: type[Warning], *place: Any) -> None:
        self.said.append((category.__name__, f"{message} ({place[0]}:{place[1]})"))

    def _take_unraisable(self, args: "sys.UnraisableHookArgs") -> None:
        trace = "".join(traceback.format_exception(args.exc_value)) if args.exc_value is not None else ""
        self.said.append(("unraisable", f"{args.err_msg} {args.object!r}\n{trace}"))

    def _take_thread(self, args: "threading.ExceptHookArgs") -> None:
        trace = "".join(traceback.format_exception(args.exc_value)) if args.exc_value is not None else ""
        self.said.append(("thread", f"{args.thread!r}\n{trace}"))
