"""What function ranks are asked to call, checked and pickled before any process exists (blocking)."""

import contextlib
import io
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from multiprocessing import context, popen_forkserver, popen_spawn_posix, spawn
from multiprocessing.reduction import ForkingPickler
from typing import Any

from aioelastic._base.aliases import StartMethod
from aioelastic._child.function_process import Call, PickledCall
from aioelastic._child.pickling import PROTOCOL, pickle_by_value
from aioelastic._errors.error_handler import text_of
from aioelastic._errors.exceptions import ContextStateError, SpecificationError
from aioelastic._processes.fork_server import default_method_left_open

_MAIN_KEYS = ("init_main_from_name", "init_main_from_path")
"""What `multiprocessing` tells a new process about the main module."""


@dataclass(frozen=True, slots=True)
class Preparation:
    """What a new process is told before its call.

    Attributes:
        data: For `multiprocessing.spawn.prepare`, without the main module.
        main: The main module, imported later; empty where it cannot be imported (a notebook, ``python -c``).
    """

    data: dict[str, Any]
    main: dict[str, str]


class Handover:
    """Stands for `multiprocessing`'s own process object while something is pickled for a new process.

    Args:
        method: How the process is started.
        reserved: How many descriptors come before those of the pickled objects.

    Attributes:
        descriptors: What the pickled objects (queues, connections) want the process to have.
    """

    def __init__(self, method: StartMethod, reserved: int = 0) -> None:
        kind = popen_spawn_posix.Popen if method == "spawn" else popen_forkserver.Popen
        self.DupFd = kind.DupFd
        self.descriptors: list[int] = []
        self._method = method
        self._reserved = reserved

    def duplicate_for_child(self, descriptor: int) -> int:
        """Note a descriptor, and give what it will be called by in the new process."""
        self.descriptors.append(descriptor)
        return descriptor if self._method == "spawn" else self._reserved + len(self.descriptors) - 1

    @contextlib.contextmanager
    def pickling(self) -> Iterator[None]:
        """Let queues, locks and the like be pickled meanwhile, in this thread."""
        context.set_spawning_popen(self)  # type: ignore[arg-type]  # only pickling talks to it
        try:
            yield
        finally:
            context.set_spawning_popen(None)


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A rank's call on its way, and the descriptors that go with it."""

    call: PickledCall
    descriptors: tuple[int, ...]


def refuse_while_importing_main() -> None:
    """Refuse to start function ranks from within one that is still importing the main module.

    Raises:
        ContextStateError: That is so.
    """
    try:
        spawn._check_not_importing_main()  # type: ignore[attr-defined]  # noqa: SLF001 - what multiprocessing itself asks
    except RuntimeError:
        raise ContextStateError(
            "start_processes() was called while a rank was importing the main module, and would start ranks without "
            "end: put what the program does under `if __name__ == '__main__':`"
        ) from None


def preparation(cwd: str | None) -> Preparation:
    """Collect what new processes are told.

    Args:
        cwd: Their working directory; the supervisor's own when not given.
    """
    with default_method_left_open():
        data = spawn.get_preparation_data("")
    main = {key: data.pop(key) for key in _MAIN_KEYS if key in data}
    path = main.get("init_main_from_path")
    if path is not None and not os.path.exists(path):  # noqa: PTH110 - "<stdin>" is no path
        main.clear()
    if cwd is not None:
        data["dir"] = cwd
    return Preparation(data, main)


def prepare_call(
    function: Callable[..., Any], args: tuple[Any, ...], rank: int, handover: Handover, main: dict[str, str]
) -> PreparedCall:
    """Pickle a rank's call.

    Raises:
        SpecificationError: It cannot be pickled.
    """
    call: Call = (function, args)
    with handover.pickling():
        try:
            payload = _pickled(call, main)
        except Exception as error:
            # Whatever a __reduce__ raises.
            raise SpecificationError(_refusal(call, rank, error)) from error
    return PreparedCall(PickledCall(payload, main), tuple(handover.descriptors))


def described(function: Callable[..., Any]) -> str:
    """Name a function for a person."""
    module = getattr(function, "__module__", None)
    name = getattr(function, "__qualname__", None) or type(function).__qualname__
    return f"{module}.{name}()" if module else f"{name}()"


def _pickled(call: Call, main: dict[str, str]) -> bytes:
    file = io.BytesIO()
    function, _ = call
    # By reference it would pickle, and not be found: there is no main module to import.
    by_value = not main and getattr(function, "__module__", None) == "__main__"
    if not by_value:
        try:
            ForkingPickler(file, PROTOCOL).dump(call)
        except Exception:
            by_value = _has_cloudpickle()
            if not by_value:
                raise
            file = io.BytesIO()
    if by_value:
        pickle_by_value(call, file)
    return file.getvalue()


def _has_cloudpickle() -> bool:
    return find_spec("cloudpickle") is not None


def _refusal(call: Call, rank: int, error: Exception) -> str:
    function, _ = call
    what = f"rank {rank} cannot be given its call of {described(function)}"
    if isinstance(error, ImportError) and not _has_cloudpickle():
        return (
            f"{what}: the program's main module cannot be imported again (a notebook, python -c), so the function has "
            "to travel whole: install cloudpickle, move it into a module, or use start_method='fork'"
        )
    remedy = "use start_method='fork'"
    if not _has_cloudpickle():
        remedy += ", or install cloudpickle for lambdas, closures and what a notebook defines"
    return f"{what}: it does not pickle ({text_of(error)}): define it at the top of a module, {remedy}"
