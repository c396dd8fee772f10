"""What is installed: its version, its marker for type checkers, and what tells of it."""

import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import aioelastic
from tests.helpers.drivers import ROOT


def test_the_version_stands_in_one_place() -> None:
    """The module and the command line say the version of the installation, and the changelog begins with it."""
    done = subprocess.run([sys.executable, "-m", "aioelastic", "--version"], capture_output=True, text=True, check=True)
    [newest, *_] = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)

    assert {aioelastic.__version__, newest, done.stdout.removeprefix("aioelastic ").rstrip()} == {version("aioelastic")}


def test_type_checkers_find_its_types() -> None:
    """The package is marked as typed."""
    assert (Path(aioelastic.__file__).parent / "py.typed").exists()


def test_a_users_project_uses_every_public_name() -> None:
    """What mypy and pyright are asked about is everything that is public."""
    project = "".join(path.read_text() for path in (ROOT / "tests" / "typing").glob("*.py"))

    assert [name for name in aioelastic.__all__ if not re.search(rf"\b{name}\b", project)] == []
