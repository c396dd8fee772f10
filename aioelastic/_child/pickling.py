"""Functions, arguments and values as bytes: as `multiprocessing` does it, or by cloudpickle where that cannot."""

# ruff: noqa: S301 - what is unpickled here has just been pickled here

import io
import pickle
from importlib import import_module
from importlib.util import find_spec
from multiprocessing.reduction import ForkingPickler
from typing import Any, Final

from aioelastic._child.value_pipe import BASIC_VALUE, VALUE, Message
from aioelastic._errors.error_handler import text_of

PROTOCOL: Final = 5
"""The newest one of all supported Pythons; large bytes and arrays are not copied on their way in and out."""

_PLAIN: Final = frozenset({"builtins", "collections", "datetime", "decimal", "fractions", "numpy", "pathlib", "uuid"})
"""Whose objects come back from a pickle without code of the user's."""


_RAISED: Final = (Exception, SystemExit, GeneratorExit)
"""Whatever a ``__reduce__`` or ``__setstate__`` may raise; a ``sys.exit(0)`` there is no success."""


class Pieces:
    """A file in memory for a pickler, which hands over large objects as they are: they are not copied.

    Attributes:
        pieces: What was written.
    """

    def __init__(self) -> None:
        self.pieces: list[bytes] = []

    def write(self, data: "bytes | memoryview") -> None:
        """Keep what the pickler has made."""
        self.pieces.append(bytes(data))


class ValuePickler(ForkingPickler):
    """Pickles a rank's value, and notes whether unpickling it could run code of the user's.

    Attributes:
        basic: It consists of basic types only.
        plain: It cannot.
    """

    def __init__(self, file: Pieces) -> None:
        super().__init__(file, PROTOCOL)
        self.basic = True
        self.plain = True

    def reducer_override(self, value: Any) -> Any:
        """Look at each object that is not of a basic type; leave the work to others."""
        self.basic = False
        if str(getattr(type(value), "__module__", "")).partition(".")[0] not in _PLAIN:
            self.plain = False
        return NotImplemented


def pickled_value(value: Any) -> Message:
    """Pickle what a function has returned, and see that it can be unpickled.

    Where unpickling runs code of the user's it is tried here, in the rank: there it can do no harm to the supervisor,
    whatever it does.

    Raises:
        TypeError: It cannot be pickled, or not be unpickled.
    """
    kind = type(value).__name__
    try:
        pieces, pickler = _pickled(value)
    except _RAISED as error:
        raise TypeError(
            f"the function returned a {kind} that cannot be pickled ({text_of(error)}){_advice()}"
        ) from error
    if pickler is None or not pickler.plain:
        try:
            pickle.loads(b"".join(pieces))
        except _RAISED as error:
            raise TypeError(
                f"the function returned a {kind} that pickles but does not unpickle ({text_of(error)})"
            ) from error
    return Message(BASIC_VALUE if pickler is not None and pickler.basic else VALUE, pieces)


def pickle_by_value(value: Any, file: Any) -> None:
    """Pickle with cloudpickle: lambdas, closures and what a notebook defines are put in whole.

    Raises:
        ImportError: It is not installed.
    """
    pickler = import_module("cloudpickle").Pickler(file, protocol=PROTOCOL)
    # What multiprocessing knows to pickle (connections, for one) works here, too.
    pickler.dispatch_table = {**pickler.dispatch_table, **ForkingPickler(io.BytesIO()).dispatch_table}
    pickler.dump(value)


def _pickled(value: Any) -> tuple[list[bytes], ValuePickler | None]:
    """Pickle a value; the pickler is given where it was not cloudpickle's."""
    file = Pieces()
    pickler = ValuePickler(file)
    try:
        pickler.dump(value)
    except _RAISED:
        file = Pieces()
        try:
            pickle_by_value(value, file)
        except _RAISED:  # not installed, or no better: the first one tells what is wrong
            file.pieces.clear()
        if not file.pieces:
            raise
        return file.pieces, None
    return file.pieces, pickler


def _advice() -> str:
    return "" if find_spec("cloudpickle") else "; with cloudpickle installed, lambdas and closures can be"
