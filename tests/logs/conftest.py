"""Temporary directories in one of the test's own, and refusals of the system."""

import os
import tempfile
from pathlib import Path
from typing import Any

import pytest

from tests.helpers.log_specs import Refusal


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let temporary directories be made in a directory of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


@pytest.fixture
def refusal(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """Let one of the system's calls fail for one name."""

    def refuse(function: str, name: str, number: int) -> None:
        real = getattr(os, function)

        def refusing(path: str, *args: Any, **kwargs: Any) -> Any:
            if Path(path).name == name:
                raise OSError(number, os.strerror(number), path)
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, function, refusing)

    return refuse
