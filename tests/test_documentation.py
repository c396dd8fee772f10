"""What the documentation shows is true: every example runs as printed."""

import ast
import doctest
import importlib
import json
import re
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import aioelastic
from aioelastic._agent.rank_environment import rank_variables
from aioelastic._agent.rendezvous import lone_world
from aioelastic._cli.option_table import OPTIONS
from aioelastic._cli.run_options import parse
from tests.helpers.pages import PAGES, ROOT, blocks_of, run_pages
from tests.test_import_floors import FLOORS

PACKAGE = Path(aioelastic.__file__).parent  # of what is installed: the sources need not be here
MODULES = sorted(
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__")
    for path in PACKAGE.rglob("*.py")
    if path.parent.name != "_child"
)

REFERENCE = ROOT / "docs" / "reference"


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
    first_and_this = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert len(first_and_this) == 2
    script = tmp_path / "squares.py"
    script.write_text(first_and_this[1])

    printed = subprocess.check_output([sys.executable, script], text=True, timeout=60)

    assert printed == "{0: 0, 1: 1, 2: 4, 3: 9}\n"


def test_the_quickstart_shows_success_and_root_cause(tmp_path: Path, open_directory: Path) -> None:
    """The quickstart's first group succeeds, its second one names rank 2 as the root cause."""
    command = [sys.executable, str(ROOT / "docs" / "examples" / "quickstart.py")]
    # A part of the standard library is enough to read; of what the ranks import, only what tells them where it is.
    for path in Path(ast.__file__).parent.glob("[a-f]*.py"):
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


@pytest.mark.parametrize("folder", ["", "tutorial", "how-to", "reference", "explanation"])
def test_what_the_pages_show_prints_what_they_say(folder: str, tmp_path: Path) -> None:
    """Each Python block, and each command in an ``sh`` block, prints the lines of the text block that follows.

    A block that begins with ``# name.py`` is a file of that name for the others of its page.
    """
    pages = [page for page in PAGES if page.parent == ROOT / "docs" / folder]

    assert run_pages(pages, tmp_path) == []
    assert pages


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_no_block_goes_unchecked(page: Path) -> None:
    """What is neither run nor printed can be read by whoever it is for: our parser, JSON's, TOML's, or Sphinx."""
    for block in blocks_of(page):
        if block.language == "bash":
            # For Slurm, or beside torchrun: its commands of ours are understood.
            for line in block.text.splitlines():
                _, ours, words = line.partition("aioelastic run ")
                assert not ours or parse(shlex.split(words, comments=True), {}).script
        elif block.language == "dockerfile":
            command = json.loads(block.text.splitlines()[-1].removeprefix("CMD "))
            assert command[:2] == ["aioelastic", "run"]
            assert parse(command[2:], {}).script
        elif block.language == "json":
            assert json.loads(block.text)
        elif block.language == "toml":
            assert tomllib.loads(block.text)
        else:
            assert block.language in {"python", "sh", "text"} or re.fullmatch(r"\{[a-z-]+\}.*", block.language), block


@pytest.mark.parametrize("page", [ROOT / "README.md", *PAGES], ids=lambda page: page.stem)
def test_every_file_a_page_points_to_is_there(page: Path) -> None:
    """No link of the README or of a page leads nowhere."""
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_reference_has_each_public_name_once() -> None:
    """Whoever looks a name up finds it, in one place."""
    pages = "\n".join(page.read_text() for page in REFERENCE.glob("*.md"))

    described = re.findall(r"^\.\. auto(?:class|exception|function):: (\w+)", pages, re.MULTILINE)

    assert sorted(name for name in described if name != "aioelastic") == aioelastic.__all__


def test_the_tree_of_exceptions_is_the_real_one() -> None:
    """The drawn tree has each exception below its base, and with the built-in one that it also is."""
    tree = next(block.text for block in blocks_of(REFERENCE / "exceptions.md") if block.language == "text")

    drawn: list[type[BaseException]] = []
    above: list[type[BaseException]] = []
    for indent, name, builtin in re.findall(r"^([│├└─ ]*)([A-Z]\w+)(?: \((\w+)\))?", tree, re.MULTILINE):
        error = getattr(aioelastic, name)
        above = [*above[: len(indent) // 4], error]
        drawn.append(error)
        assert not builtin or issubclass(error, getattr(importlib.import_module("builtins"), builtin))
        assert len(above) == 1 or above[-2] in error.__bases__
    public = [getattr(aioelastic, name) for name in aioelastic.__all__]
    assert set(drawn) == {each for each in public if isinstance(each, type) and issubclass(each, BaseException)}


def test_the_reference_has_all_options_with_their_meaning() -> None:
    """The table of ``aioelastic run`` is what the parser goes by."""
    page = (REFERENCE / "command-line.md").read_text()

    rows = re.findall(r"^\| (?:`-(\w)`, )?`--(\S+?)(?: (\S+))?` \| (.+) \|$", page, re.MULTILINE)

    assert [(*names, meaning.replace("`", "")) for *names, meaning in rows] == [
        (each.short, each.name, each.metavar, each.help) for each in OPTIONS
    ]
    assert all(f"`{each.variable}`" in page for each in OPTIONS if each.variable)


def test_the_reference_has_all_variables_of_a_rank() -> None:
    """What an agent's rank is given stands on the page."""
    page = (REFERENCE / "variables.md").read_text()
    spec = aioelastic.WorkerSpec(entrypoint="true", local_world_size=2, virtual_local_rank=True)

    given = rank_variables(spec, lone_world(2), 0, 0, {})

    assert set(given) <= set(re.findall(r"^\* `(\w+)`: ", page, re.MULTILINE))


def test_the_architecture_page_draws_all_floors() -> None:
    """The stack on the page is the one that imports are held to."""
    page = (ROOT / "docs" / "explanation" / "architecture.md").read_text()

    drawn = re.findall(r"<b>(\w+)</b>", page)

    assert drawn[::-1] == [floor for floor in FLOORS if floor.startswith("_") and floor != "__main__"]
