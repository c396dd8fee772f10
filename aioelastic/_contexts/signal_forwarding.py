"""`forward_signals`: what the program is told to do, its ranks are told too."""

import asyncio
import contextvars
import logging
import signal
import threading
import warnings
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import cast

from aioelastic._base.shielding import settle
from aioelastic._base.signals import ENDING, FAULTS, UNSEEN, signal_name
from aioelastic._contexts.checks import checked_signal
from aioelastic._contexts.supervised import Supervised
from aioelastic._errors.exceptions import ContextStateError, SpecificationError, SpecificationTypeError
from aioelastic._supervision.signal_handlers import Listening

logger = logging.getLogger("aioelastic")


def forward_signals(context: Supervised, *signals: signal.Signals) -> AbstractAsyncContextManager["ForwardedSignals"]:
    """Within ``async with``, turn signals to this program into a close that begins with that signal.

    The first one is ``context.close(that signal)``: every rank gets exactly it, then has the context's
    ``shutdown_timeout``, then SIGKILL. A second one, whichever, kills at once. So `PContext.wait` returns, and the
    object given says what came; no `KeyboardInterrupt` is raised and no task cancelled. A context that has not started
    yet is closed too, and one that is starting gives its start up: its ``start()`` raises `ContextStateError` when all
    is reaped. For one that has ended a signal is only noted.

    * On leaving, what handled the signals before is put back exactly. Closes that a signal began are waited for first;
      a signal during that is the second one.
    * A signal that is ignored on entry (``nohup``) stays ignored, and is not forwarded.
    * One that is handled by C code, which Python could not put back, is left alone with a `RuntimeWarning`.
    * Blocks may be nested or overlap, in any order: each gets every signal that it asked for, so that one ^C ends all
      their groups.
    * Handlers of ``loop.add_signal_handler`` are called as well, as the loop hears of signals in a way of its own.
      Those of ``signal.signal`` are not: a server that ends by one (uvicorn) would go on, so within such a server
      close the context when the server shuts down.
    * Only a program's main thread can handle signals: elsewhere there is a `RuntimeWarning`, and no effect.
    * A forked child has the handlers of before.

    Cancellation of what is inside ends only that. Cancelled while it waits on leaving, it kills, reaps, and raises.

    Args:
        context: The group, or the `LocalElasticAgent`: of that a signal ends the run, also between two attempts.
        signals: What to forward; SIGTERM, SIGINT, SIGHUP and SIGQUIT when not given.

    Returns:
        What gives a `ForwardedSignals` to ``async with``, once.

    Raises:
        SpecificationError: No such signal, or one that ends no process, cannot be caught, or is a fault of the program
            itself.
        ContextStateError: When entered: it was used before.
        Exception: When left: what a close that a signal began has raised. It is logged if another exception is on its
            way already.

    Example:
        >>> import asyncio, os, signal
        >>> from aioelastic import start_processes
        >>> async def main() -> None:
        ...     async with start_processes("job", "sleep", args={0: (60,), 1: (60,)}) as context:
        ...         async with forward_signals(context) as forwarded:
        ...             os.kill(os.getpid(), signal.SIGTERM)  # as a scheduler does it
        ...             result = await context.wait()
        ...     print(result.exits[1].signal, [each.name for each in forwarded.received])
        >>> asyncio.run(main())
        SIGTERM ['SIGTERM']
    """
    if not isinstance(context, Supervised):
        kind = type(context).__name__
        raise SpecificationTypeError(
            f"context must be a PContext, as awaiting start_processes() gives, or a LocalElasticAgent, not {kind}"
        )
    return _Forwarding(context, list(dict.fromkeys(_checked(each) for each in signals or ENDING)))


class ForwardedSignals:
    """What `forward_signals` has received so far."""

    __slots__ = ("_received",)

    def __init__(self, received: list[signal.Signals]) -> None:
        self._received = received

    @property
    def received(self) -> tuple[signal.Signals, ...]:
        """The signals in the order in which they came; a real-time signal without a name of its own is a number."""
        return tuple(self._received)

    def __repr__(self) -> str:
        names = [signal_name(number) for number in self._received]
        return f"<{type(self).__name__}: {', '.join(names) or 'none'}>"


class _Forwarding(AbstractAsyncContextManager[ForwardedSignals]):
    """Forwards signals to one context while it is entered."""

    def __init__(self, context: Supervised, numbers: list[int]) -> None:
        self._context = context
        self._numbers = numbers
        self._received: list[signal.Signals] = []
        self._forwarded = 0
        self._closes: list[asyncio.Task[None]] = []
        self._listening: Listening | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._variables = contextvars.Context()

    async def __aenter__(self) -> ForwardedSignals:
        if self._loop is not None:
            raise ContextStateError("forward_signals() was used before: call it again for another async with")
        self._loop = asyncio.get_running_loop()
        self._variables = contextvars.copy_context()
        if threading.current_thread() is not threading.main_thread():
            warnings.warn(
                f"forward_signals() has no effect on context {self._context.name!r}: only a program's main thread can "
                "handle signals",
                RuntimeWarning,
                stacklevel=2,
            )
            return ForwardedSignals(self._received)
        foreign = [signal_name(number) for number in self._numbers if signal.getsignal(number) is None]
        if foreign:
            warnings.warn(
                f"{', '.join(foreign)} cannot be forwarded to context {self._context.name!r}: handled by C code, which "
                "Python could not put back",
                RuntimeWarning,
                stacklevel=2,
            )
        self._listening = Listening(self._numbers, self._note)
        return ForwardedSignals(self._received)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._finish()
        except BaseException as leaving:
            error = leaving
            raise
        finally:
            self._tell_failures(error)

    def _note(self, number: int) -> bool:
        """Take note of a signal, anywhere in the program's main thread; the loop does the rest."""
        if self._loop is None or self._loop.is_closed():
            return False
        self._received.append(_named(number))
        # Without a context of its own it would run in that of whatever was interrupted.
        self._loop.call_soon_threadsafe(self._forward, context=self._variables)
        return True

    def _forward(self) -> None:
        """Begin a close for every signal that none was begun for."""
        for number in self._received[self._forwarded :]:
            self._begin_close(signal.SIGKILL if self._forwarded else number)
            self._forwarded += 1

    def _begin_close(self, number: signal.Signals) -> None:
        closing = self._context.close(number)
        name = f"aioelastic: forward {signal_name(number)} to {self._context.name}"
        self._closes.append(asyncio.get_running_loop().create_task(closing, name=name))

    async def _finish(self) -> None:
        """See the closes to their end, then put the handlers back."""
        try:
            await self._settle()
        finally:
            if self._listening is not None:
                self._listening.close()
            # A signal can have come between the two.
            await self._settle()

    async def _settle(self) -> None:
        self._forward()
        try:
            while pending := [each for each in self._closes if not each.done()]:
                await asyncio.wait(pending)
        except asyncio.CancelledError:
            self._begin_close(signal.SIGKILL)
            await settle(asyncio.gather(*self._closes, return_exceptions=True))
            raise

    def _tell_failures(self, error: BaseException | None) -> None:
        """Raise what a close has raised, unless something else is on its way: then log it."""
        failures = [failure for each in self._closes if not each.cancelled() and (failure := each.exception())]
        for failure in failures if error is not None else failures[1:]:
            logger.error("closing context %r on a signal failed", self._context.name, exc_info=failure)
        if failures and error is None:
            raise failures[0]


def _checked(value: object) -> int:
    """Give the number of a signal that can be forwarded."""
    if isinstance(value, int) and value in UNSEEN:
        raise SpecificationError(f"{signal_name(value)} cannot be forwarded: the system lets no program see it")
    if isinstance(value, int) and value in FAULTS:
        raise SpecificationError(f"{signal_name(value)} cannot be forwarded: it is a fault of this program itself")
    return checked_signal("a signal to forward", value)


def _named(number: int) -> signal.Signals:
    """Give a signal by name where it has one."""
    try:
        return signal.Signals(number)
    except ValueError:
        # As for death_sig: a real-time signal is a number that nobody has made a member.
        return cast("signal.Signals", number)
