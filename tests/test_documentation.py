"""What the documentation shows is true: every example runs as printed."""

import ast
import doctest
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT = Path(__file__).parent.parent
MODULES = sorted(
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__")
    for path in (ROOT / "aioelastic").rglob("*.py")
    if path.parent.name != "_child"
)

GUIDES = sorted((ROOT / "docs" / "how-to").glob("*.md"))
PROGRAMMED = [path for path in GUIDES if "```python" in path.read_text()]

RUNS_BLOCKS: Final = """
import runpy, sys
for program in sys.argv[1:]:
    print("== " + program, flush=True)
    runpy.run_path(program, run_name="__main__")
"""
"""Runs programs one after the other: an interpreter for each would take longer than what they do."""


@pytest.mark.parametrize("module", MODULES)
def test_docstring_examples_run_as_printed(module: str) -> None:
    """The examples of a module's docstrings give what they say."""
    imported = importlib.import_module(module)
    # Public names say that they live in the face, which has each from its first use on: so there they are looked for.
    for name in getattr(imported, "__all__", ()):
        getattr(imported, name)

    failed, _ = doctest.testmod(imported)

    assert failed == 0


def test_the_readmes_first_program_does_what_it_says(tmp_path: Path) -> None:
    """The ten lines of the README print each rank's line and the failure."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    program = found[1].replace("/tmp/hello", str(tmp_path))

    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60)

    lines = done.stdout.splitlines()
    assert sorted(lines[:3]) == [f"[hello{rank}]:hello from {rank}" for rank in range(3)]
    assert lines[3:] == ["{2: 1}"]


def test_the_readmes_program_with_a_function_does_what_it_says(tmp_path: Path) -> None:
    """The README's second program, in a script of its own, prints the squares."""
    program = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[1]
    script = tmp_path / "squares.py"
    script.write_text(program)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    printed = subprocess.check_output([sys.executable, script], text=True, timeout=60, env=environment)

    assert printed == "{0: 0, 1: 1, 2: 4, 3: 9}\n"


def test_the_quickstart_shows_success_and_root_cause(tmp_path: Path, open_directory: Path) -> None:
    """The quickstart's first group succeeds, its second one names rank 2 as the root cause."""
    command = [sys.executable, str(ROOT / "docs" / "examples" / "quickstart.py")]
    # A part of the standard library is enough to read; of what the ranks import, only what tells them where it is.
    for path in Path(ast.__file__).parent.glob("*.py"):
        if path.stem == "ast" or path.stem not in sys.modules:
            (open_directory / path.name).symlink_to(path)
    environment = {"PATH": "/bin", "TMPDIR": str(tmp_path), "PYTHONPATH": str(open_directory)}

    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100, env=environment)

    assert "All 4 ranks succeeded" in done.stdout
    assert re.search(r"^\[reader\d\]:\d+ functions in", done.stdout, re.MULTILINE)
    assert "Root cause: rank 2" in done.stdout
    assert "FileNotFoundError: rank 2 found no Python sources" in done.stdout
    # The others were stopped, or had done their work by then.
    assert "Other failure" not in done.stdout


@pytest.mark.parametrize("guide", PROGRAMMED, ids=lambda guide: guide.stem)
def test_the_programs_of_a_guide_print_what_it_says(guide: Path, tmp_path: Path) -> None:
    """Each Python block runs as it stands, and prints the lines of the text block that follows.

    A block that begins with ``# name.py`` is a file of that name for the others.
    """
    blocks = re.findall(r"```python\n(.*?)```(?:\n+(?:It prints:\n+)?```text\n(.*?)```)?", guide.read_text(), re.DOTALL)
    printed: dict[str, str] = {}
    for number, (program, output) in enumerate(blocks):
        named = re.match(r"# (\w+\.py)\n", program)
        name = named[1] if named else f"block_{number}.py"
        (tmp_path / name).write_text(program)
        if not named:
            printed[name] = output
    command = [sys.executable, "-W", "error", "-c", RUNS_BLOCKS, *printed]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}

    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=60
    )

    assert (done.stderr, done.returncode) == ("", 0)
    found = re.split(r"^== (.*)\n", done.stdout, flags=re.MULTILINE)[1:]
    # Lines of different ranks come in any order.
    assert {name: sorted(text.splitlines()) for name, text in zip(found[::2], found[1::2], strict=True)} == {
        name: sorted(text.splitlines()) for name, text in printed.items()
    }


@pytest.mark.parametrize("page", [ROOT / "README.md", *GUIDES], ids=lambda page: page.stem)
def test_every_file_a_page_points_to_is_there(page: Path) -> None:
    """No link of the README or of a guide leads nowhere."""
    for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
        assert (page.parent / target).exists(), target
