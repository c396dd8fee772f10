"""The decorator of a rank's main function: what it raises reaches the supervisor."""

# inspect costs a rank 10 ms and more, and nearly every main is an ordinary def or async def.
# ruff: noqa: PLC0415

import sys
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from types import FunctionType
from typing import TYPE_CHECKING, Any, Final, ParamSpec, Protocol, TypeVar, overload

from aioelastic._errors.error_handler import ErrorHandler, get_error_handler

if TYPE_CHECKING:
    from aioelastic._errors.child_failed import ChildFailedError

P = ParamSpec("P")
R = TypeVar("R")

_CO_COROUTINE: Final = 0x80
"""The flag of an ``async def`` in ``__code__.co_flags`` (``inspect.CO_COROUTINE``)."""


class RecordDecorator(Protocol):
    """What ``record(error_handler=...)`` gives: `record` with its handler chosen."""

    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> Callable[P, Coroutine[Any, Any, R | None]]: ...

    @overload
    def __call__(self, fn: Callable[P, R], /) -> Callable[P, R | None]: ...


@overload
def record(
    fn: Callable[P, Coroutine[Any, Any, R]], error_handler: ErrorHandler | None = None
) -> Callable[P, Coroutine[Any, Any, R | None]]: ...


@overload
def record(fn: Callable[P, R], error_handler: ErrorHandler | None = None) -> Callable[P, R | None]: ...


@overload
def record(fn: None = None, error_handler: ErrorHandler | None = None) -> RecordDecorator: ...


def record(fn: Callable[..., Any] | None = None, error_handler: ErrorHandler | None = None) -> Any:
    """Decorate the main function of a rank, plain or ``async def``: its supervisor learns why it failed.

    An exception that leaves the function is written to the file named by ``TORCHELASTIC_ERROR_FILE`` and
    raised on as it is; without that variable only the exception goes on. ``faulthandler`` is switched on.
    Some exceptions are no plain errors:

    * `ChildFailedError`: the error file of its root cause is passed on in place of its own text, also when it
      is the only member of an exception group, as a task group raises it.
    * ``SystemExit`` with 0 or ``None`` is a success, the function returns ``None``; any other goes on
      unrecorded, for the exit code says it all.
    * ``KeyboardInterrupt`` is recorded.
    * ``GeneratorExit`` goes on unrecorded. So does ``asyncio.CancelledError`` in an ``async def``: whoever
      cancelled the task wanted it to end, often because of an exception that is the real cause and must not
      find the file taken. In a plain function it is recorded, for there it ends the program.

    A generator function is called, not iterated, so what it raises later is not seen.

    Args:
        fn: The function; left out, ``record(error_handler=...)`` gives a decorator.
        error_handler: Does the recording; by default `get_error_handler()`.

    Returns:
        The function with the same signature; it may also return ``None``.

    Example:
        >>> @record
        ... def main(epochs: int) -> int:
        ...     return epochs + 1
        >>> main(1)
        2

    It means the same as the decorator of this name in ``torch.distributed.elastic.multiprocessing.errors``.
    """
    handler = get_error_handler() if error_handler is None else error_handler
    if fn is None:
        return partial(record, error_handler=handler)
    return _recorded_coroutine(fn, handler) if _is_async(fn) else _recorded(fn, handler)


def _recorded(fn: Callable[P, R], handler: ErrorHandler) -> Callable[P, R | None]:
    @wraps(fn)
    def recorded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        _guarded(handler.initialize)
        try:
            return fn(*args, **kwargs)
        except GeneratorExit:
            raise
        except BaseException as error:
            if _is_success(error):
                return None
            _guarded(_report, error, handler)
            raise

    return recorded


def _recorded_coroutine(
    fn: Callable[P, Coroutine[Any, Any, R]], handler: ErrorHandler
) -> Callable[P, Coroutine[Any, Any, R | None]]:
    @wraps(fn)
    async def recorded(*args: P.args, **kwargs: P.kwargs) -> R | None:
        _guarded(handler.initialize)
        try:
            return await fn(*args, **kwargs)
        except GeneratorExit:
            raise
        except BaseException as error:
            if _is_success(error):
                return None
            if not _is_cancellation(error):
                _guarded(_report, error, handler)
            raise

    return recorded


def _report(error: BaseException, handler: ErrorHandler) -> None:
    """Leave word of an exception for the supervisor."""
    if isinstance(error, SystemExit):
        return
    failed = _child_failure(error)
    if failed is not None:
        # Loaded already, as there is an exception of that floor.
        from aioelastic._errors.process_failure import NOT_AVAILABLE

        _, failure = failed.get_first_failure()
        # A handler of the user's may return None; only a plain False says that nothing was passed on.
        if (
            failure.error_file != NOT_AVAILABLE
            and handler.dump_error_file(failure.error_file, failure.exitcode or 0) is not False
        ):
            return
        error = failed
    handler.record_exception(error)


def _is_success(error: BaseException) -> bool:
    if not isinstance(error, SystemExit):
        return False
    return error.code is None or (isinstance(error.code, int) and error.code == 0)


def _is_cancellation(error: BaseException) -> bool:
    # Where asyncio was never imported, nothing can be its exception.
    module = sys.modules.get("asyncio.exceptions")
    return module is not None and isinstance(error, module.CancelledError)


def _child_failure(error: BaseException) -> "ChildFailedError | None":
    """Find the `ChildFailedError` that an exception is, or is wrapped around by groups of one."""
    module = sys.modules.get("aioelastic._errors.child_failed")
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if module is None or not isinstance(error, module.ChildFailedError):
        return None
    failed: ChildFailedError = error
    return failed


def _is_async(fn: Callable[..., Any]) -> bool:
    if isinstance(fn, FunctionType) and not hasattr(fn, "_is_coroutine_mark"):
        return bool(fn.__code__.co_flags & _CO_COROUTINE)
    # Partials, methods, callable objects and functions marked by inspect.markcoroutinefunction.
    import inspect

    call = getattr(fn, "__call__", None)  # noqa: B004 - whether it is async is asked, not whether it exists
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(call)


def _guarded(action: Callable[P, None], *args: P.args, **kwargs: P.kwargs) -> None:
    """Run a handler's method; a fault of its own must not take the place of the user's exception."""
    try:
        action(*args, **kwargs)
    except Exception:
        import logging

        logging.getLogger("aioelastic").exception("the error handler of aioelastic.record failed")
