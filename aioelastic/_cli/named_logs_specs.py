"""``--logs-specs NAME``: classes that say where logs go, found by their entry points, torch's included."""

import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from aioelastic._errors.exceptions import SpecificationError
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs
from aioelastic._logs.std import Std

GROUP: Final = "torchrun.logs_specs"
"""The group of entry points that torchrun looks into."""

_TORCH: Final = "torch.distributed.elastic.multiprocessing"
_DEFAULT: Final = "default"
"""The name under which torch registers its own class; ours is what it means here."""


def make_logs_specs(
    name: str | None,
    *,
    log_dir: str | None,
    redirects: Std | dict[int, Std],
    tee: Std | dict[int, Std],
    local_ranks_filter: frozenset[int] | None,
) -> LogsSpecs:
    """Make the object that says where logs go.

    Torch's own class is never imported: `DefaultLogsSpecs` lays logs out as it does. A class derived from torch's
    ``LogsSpecs`` imports torch by itself, which takes its time, and is used through `TorchLogsSpecs`.

    Args:
        name: The entry point, or ``None`` for `DefaultLogsSpecs`.
        log_dir: Where to keep logs.
        redirects: The streams that go to files.
        tee: The streams that go to files and to the console.
        local_ranks_filter: The only ranks that may write to the console.

    Raises:
        SpecificationError: There is no such entry point, or what it names cannot be used.
        LogDirectoryError: ``log_dir`` is a file.
    """
    make: Callable[..., LogsSpecs] = DefaultLogsSpecs if name is None else _named(name)
    try:
        return make(log_dir=log_dir, redirects=redirects, tee=tee, local_ranks_filter=local_ranks_filter)
    except Exception as error:
        if make is DefaultLogsSpecs:
            raise
        # Whoever wrote the class is not who reads this.
        raise SpecificationError(
            f"--logs-specs {name}: its class takes log_dir, redirects, tee and local_ranks_filter by name, "
            f"and raised {type(error).__name__}: {error}"
        ) from error


def _named(name: str) -> Callable[..., LogsSpecs]:
    from importlib.metadata import entry_points  # noqa: PLC0415 - costs 10 ms that only this option needs

    found = {each.name: each for each in entry_points(group=GROUP)}
    if name == _DEFAULT and (name not in found or found[name].value.startswith(f"{_TORCH}:")):
        return DefaultLogsSpecs
    if name not in found:
        names = ", ".join(sorted({_DEFAULT, *found}))
        raise SpecificationError(f"--logs-specs {name}: no package registers it in {GROUP}: give one of {names}")
    entry = found[name]
    try:
        kind = entry.load()
    except Exception as error:
        raise SpecificationError(
            f"--logs-specs {name}: {entry.value} cannot be imported ({type(error).__name__}: {error})"
        ) from error
    if isinstance(kind, type) and issubclass(kind, LogsSpecs):
        return kind
    if isinstance(kind, type) and _torchs(kind) is not None:
        return partial(TorchLogsSpecs, kind)
    raise SpecificationError(f"--logs-specs {name}: {entry.value} is no class derived from aioelastic.LogsSpecs")


def _torchs(kind: type) -> type | None:
    """Give torch's ``LogsSpecs`` that a class is derived from."""
    bases = (base for base in kind.__mro__ if base.__name__ == "LogsSpecs" and base.__module__.startswith(_TORCH))
    return next(bases, None)


class TorchLogsSpecs(LogsSpecs):
    """A class of torch's, or one derived from it, behind our interface.

    Args:
        kind: The class; the module that its base is from has been imported, therefore.
        log_dir: As for `LogsSpecs`.
        redirects: As for `LogsSpecs`.
        tee: As for `LogsSpecs`.
        local_ranks_filter: As for `LogsSpecs`.
    """

    def __init__(
        self,
        kind: type,
        log_dir: str | None = None,
        redirects: Std | Mapping[int, Std] = Std.NONE,
        tee: Std | Mapping[int, Std] = Std.NONE,
        local_ranks_filter: frozenset[int] | None = None,
    ) -> None:
        super().__init__(log_dir, redirects, tee, local_ranks_filter)
        # torch's functions look at the type of flags; its own are beside the base.
        flags = sys.modules[(_torchs(kind) or kind).__module__].Std
        self._theirs = kind(
            log_dir=log_dir,
            redirects=_converted(self.redirects, flags),
            tee=_converted(self.tee, flags),
            local_ranks_filter=None if local_ranks_filter is None else set(local_ranks_filter),
        )

    def reify(self, envs: Mapping[int, Mapping[str, Any]]) -> LogsDest:
        """Give the destinations that the class of torch's gives."""
        # It may add to the variables: it gets copies.
        theirs = self._theirs.reify({rank: {name: str(env[name]) for name in env} for rank, env in envs.items()})
        return LogsDest(
            dict(theirs.stdouts),
            dict(theirs.stderrs),
            dict(theirs.tee_stdouts),
            dict(theirs.tee_stderrs),
            dict(theirs.error_files),
            # Older versions of torch have no filters.
            getattr(theirs, "filtered_stdout", ""),
            getattr(theirs, "filtered_stderr", ""),
        )

    @property
    def root_log_dir(self) -> str | None:
        """The directory that the class of torch's names."""
        root = self._theirs.root_log_dir
        return None if root is None else str(root)


def _converted(streams: Std | dict[int, Std], flags: Callable[[int], Any]) -> Any:
    if isinstance(streams, Std):
        return flags(int(streams))
    return {rank: flags(int(each)) for rank, each in streams.items()}
