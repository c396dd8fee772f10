"""The process of a function rank, as `multiprocessing` sees it.

`multiprocessing` starts it, makes it the current process, and runs its finalizers (queues are flushed, children
joined) at the end. Between the two it calls `FunctionProcess.run`. Its pickle holds the function as bytes: those are
opened, and the main module imported, only when the process has been made what a rank is.
"""

# ruff: noqa: PLC0415 - what only some ranks need is imported by those

import os
import pickle
import select
import sys
from collections.abc import Callable
from multiprocessing import process
from types import CoroutineType
from typing import Any, NamedTuple

from aioelastic._child.pickling import pickled_value
from aioelastic._child.value_pipe import REPORT, Message, send
from aioelastic._child.world import World, enter_world, lifted
from aioelastic._errors.error_files import ERROR_FILE_VARIABLE, written_texts
from aioelastic._errors.error_handler import exception_data
from aioelastic._errors.recording import record

Call = tuple[Callable[..., Any], tuple[Any, ...]]
"""A function and its arguments."""


class PickledCall(NamedTuple):
    """A call on its way to a rank (spawn, fork server)."""

    payload: bytes
    """The pickled `Call`."""

    main: dict[str, str]
    """How the main module is imported (`multiprocessing.spawn.prepare`)."""

    def open(self) -> Call:
        """Import the main module, and unpickle the call."""
        from multiprocessing.spawn import prepare

        # As multiprocessing does meanwhile: a main module that starts processes on import is told so.
        current = process.current_process()
        current._inheriting = True  # type: ignore[attr-defined]  # noqa: SLF001 - see above
        try:
            prepare(self.main)
            call: Call = pickle.loads(self.payload)  # noqa: S301 - the supervisor's own
        finally:
            del current._inheriting  # type: ignore[attr-defined]  # noqa: SLF001 - see above
        return call


class FunctionProcess(process.BaseProcess):
    """One function rank.

    Args:
        name: Its name.
        method: How it is started; the start method of what it starts itself, too.
        world: What it is to be.
        value: The descriptor for its value.
        call: What it is to call: itself in a forked process, else its pickle.
    """

    def __init__(self, name: str, method: str, world: World, value: int, call: Call | PickledCall) -> None:
        super().__init__(name=name, daemon=False)
        self._start_method = method
        self._world = world
        self._value = value
        self._call = call

    def _bootstrap(self, parent_sentinel: int | None = None) -> int:
        try:
            if parent_sentinel is not None:
                parent_sentinel = lifted(parent_sentinel)
            self._enter()
        except BaseException:  # noqa: BLE001 - a forked copy must not go on into the supervisor's code
            import traceback

            # To the descriptor: the stream may be a copy of an object of the supervisor's.
            os.write(2, traceback.format_exc().encode("utf-8", "replace"))
            return 1
        if parent_sentinel is not None and select.select([parent_sentinel], (), (), 0)[0]:
            return 1  # the supervisor is gone, and its guard may have looked before this process bore its mark
        code: int = super()._bootstrap(parent_sentinel=parent_sentinel)  # type: ignore[misc]  # not in the stubs
        return code

    def run(self) -> None:
        """Call the function and send what it returns."""

        def work() -> Message:
            message = pickled_value(self._returned())
            self._require_pipe()
            return message

        try:
            message = record(work)()
        except BaseException as error:
            self._report(error)
            raise
        # None is what is left of sys.exit(0).
        self._require_pipe()
        send(self._value, pickled_value(None) if message is None else message)

    def _enter(self) -> None:
        if self._start_method == "forkserver":
            from multiprocessing.forkserver import get_inherited_fds

            # The fork server has received descriptors, and numbers them anew.
            given = get_inherited_fds() or []
            self._value = given[self._value]
            stdio = self._world.stdio
            if stdio is not None:
                self._world = self._world._replace(stdio=(given[stdio[0]], given[stdio[1]]))
        self._value = lifted(self._value)
        self._pipe = _identity(self._value)
        enter_world(self._world)

    def _returned(self) -> Any:
        function, args = self._call.open() if isinstance(self._call, PickledCall) else self._call
        # The pickle can be as large as the arguments.
        del self._call
        returned = function(*args)
        if isinstance(returned, CoroutineType):
            import asyncio

            return asyncio.run(returned)
        return returned

    def _require_pipe(self) -> None:
        """Refuse to write the value into what is not our pipe any more: it may be a file of the function's by now."""
        if not self._has_pipe():
            raise RuntimeError(
                "the function has closed the descriptor by which its value is sent: close those only that it has opened"
            )

    def _has_pipe(self) -> bool:
        return _identity(self._value) == self._pipe

    def _report(self, error: BaseException) -> None:
        """Tell of an exception by the pipe where there is no file for it."""
        if os.environ.get(ERROR_FILE_VARIABLE) or isinstance(error, SystemExit) or not self._has_pipe():
            return
        import json

        try:
            report = json.dumps(written_texts(exception_data(error))).encode()
        except Exception:  # noqa: BLE001 - the exception itself must go on
            sys.stderr.write("aioelastic: the exception could not be reported\n")
            return
        send(self._value, Message(REPORT, [report]))


def _identity(descriptor: int) -> tuple[int, int] | None:
    """Tell what a descriptor stands for; ``None`` if it is closed."""
    try:
        status = os.fstat(descriptor)
    except OSError:
        return None
    return status.st_dev, status.st_ino
