"""Real rank programs with an error file of their own."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TypeAlias

import pytest

RunRank: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def error_path(tmp_path: Path) -> Path:
    """Where the rank's error file belongs."""
    return tmp_path / "error.json"


@pytest.fixture
def run_rank(error_path: Path) -> RunRank:
    """Run a program text to its end as a rank would be run."""

    def run(program: str, **env: str) -> "subprocess.CompletedProcess[str]":
        inherited = {**os.environ, "TORCHELASTIC_ERROR_FILE": str(error_path)}
        return subprocess.run(
            [sys.executable, "-c", program],
            env={**inherited, **env},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    return run
