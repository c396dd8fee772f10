"""Log specifications, the variables that they read, and the directories that they make."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, TypeAlias

from aioelastic import LogsDest, LogsSpecs
from tests.helpers.nobody import said_by_nobody

ENVS: Final[dict[int, dict[str, Any]]] = {0: {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "0"}, 1: {}}
"""The variables of a group of two ranks."""

Refusal: TypeAlias = Callable[[str, str, int], None]
"""Lets a function of `os` fail for the name of a file, with an errno."""


class Own(LogsSpecs):
    """A specification of a user: flat files, named by the test."""

    def __init__(self, dest: LogsDest, **options: Any) -> None:
        super().__init__(**options)
        self.dest = dest

    @property
    def root_log_dir(self) -> str | None:
        """Nowhere in particular."""
        return None

    def reify(self, envs: Mapping[int, Mapping[str, Any]]) -> LogsDest:
        """Give what the test wants."""
        del envs
        return self.dest


def envs_of(run_id: object = "job", attempt: object = 0, nprocs: int = 1) -> dict[int, dict[str, Any]]:
    """Give the variables of a group, where rank 0's name its run and its attempt."""
    envs: dict[int, dict[str, Any]] = {rank: {} for rank in range(nprocs)}
    envs[0] = {"TORCHELASTIC_RUN_ID": run_id, "TORCHELASTIC_RESTART_COUNT": attempt}
    return envs


def tree(root: Path) -> list[str]:
    """List all that is below a directory."""
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def attempt_directory(dest: LogsDest) -> Path:
    """Give the directory of the attempt that these destinations are for."""
    return Path(dest.filtered_stdout).parent


def plant(planted: Path, kind: str, trap: Path) -> None:
    """Put a ``file``, a ``symlink`` to a trap, or a ``dangling`` one into it, in the place of something else."""
    if kind == "file":
        planted.write_text("planted")
    elif kind == "symlink":
        planted.symlink_to(trap)
    else:
        planted.symlink_to(trap / "new")


def reify_as_nobody(log_dir: Path, prepare: str = "") -> str:
    """Tell where a run goes, or what stops it, in a process that acts as a user to whom permissions apply."""
    return said_by_nobody(
        "from aioelastic._logs.specs import DefaultLogsSpecs",
        f"{prepare}\n"
        "envs = {0: {'TORCHELASTIC_RUN_ID': 'job'}}\n"
        f"try: print(os.path.dirname(DefaultLogsSpecs({str(log_dir)!r}).reify(envs).filtered_stdout) + '/error')\n"
        "except PermissionError as error: print(type(error).__mro__[1].__name__, error.errno, error.filename)",
    )
