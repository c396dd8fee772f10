"""The house: imports fall one way, from the face down to the words."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aioelastic

PACKAGE = Path(aioelastic.__file__).parent

FLOORS = (
    "_base",
    "_errors",
    "_logs",
    "_numa",
    "_child",
    "_processes",
    "_guard",
    "_supervision",
    "_contexts",
    "_launch",
    "_agent",
    "_testing",
    "pytest_plugin",
    "_cli",
    "__main__",
)
"""From the ground up; a module imports from its own floor and from those before it in this list."""

MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path != PACKAGE / "__init__.py")


def dotted(path: Path) -> str:
    """Give a module's name."""
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(part for part in parts if part != "__init__")


def imports(path: Path, *, type_checking: bool) -> Iterator[str]:
    """Give the names of our own modules that a module imports, with or without those for type checkers only."""
    for node in ast.walk(_without_type_checking(path) if not type_checking else ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} has a relative import"
            if (node.module or "").split(".")[0] == "aioelastic":
                yield node.module or ""
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == "aioelastic")


def _without_type_checking(path: Path) -> ast.Module:
    tree = ast.parse(path.read_text())
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING")
    ]
    return tree


def floor_of(module: str) -> str:
    """Give the floor of a module by its dotted name."""
    return module.split(".")[1]


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_module_imports_only_from_its_own_floor_and_those_below(path: Path) -> None:
    """No import goes upward, and none goes through the package root."""
    own = FLOORS.index(floor_of(dotted(path)))

    for module in imports(path, type_checking=True):
        assert module != "aioelastic", f"{dotted(path)} imports from the package root"
        assert FLOORS.index(floor_of(module)) <= own, f"{dotted(path)} imports {module} from a floor above"


def test_no_modules_import_each_other_in_a_circle() -> None:
    """Following imports never leads back."""
    graph = {dotted(path): set(imports(path, type_checking=False)) for path in MODULES}
    finished: set[str] = set()

    def follow(module: str, trail: tuple[str, ...]) -> None:
        assert module not in trail, f"a circle: {' -> '.join((*trail, module))}"
        if module in finished:
            return
        for imported in graph.get(module, ()):
            follow(imported, (*trail, module))
        finished.add(module)

    for module in graph:
        follow(module, ())


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_file_stays_readable(path: Path) -> None:
    """No file is longer than 400 lines, and none has a name that says nothing."""
    assert len(path.read_text().splitlines()) <= 400
    assert path.stem not in {"core", "utils", "util", "common", "misc", "helpers"}


@pytest.mark.parametrize("path", MODULES, ids=dotted)
def test_a_function_stays_readable(path: Path) -> None:
    """None is longer than 40 lines, its docstring not counted."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            docstring = 1 if ast.get_docstring(node) is not None and len(node.body) > 1 else 0
            assert (node.end_lineno or 0) - node.body[docstring].lineno < 40, node.name


@pytest.mark.parametrize("path", sorted((PACKAGE / "_child").glob("*.py")), ids=dotted)
def test_what_runs_in_a_rank_starts_light(path: Path) -> None:
    """The child's own code, and all that it imports, does without asyncio, anyio and psutil."""
    program = f"import sys, {dotted(path)}; print(*sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )

    assert not set(done.stdout.split()) & {"aiofiles", "anyio", "asyncio", "psutil"}


def test_the_exec_step_imports_nothing_of_this_package() -> None:
    """It runs with ``-I -S``, where the package may not be found."""
    assert not list(imports(PACKAGE / "_child" / "exec_step.py", type_checking=True))


def test_the_command_line_starts_light() -> None:
    """``aioelastic run`` has not imported what only some runs, or only their ends, need."""
    program = "import sys; before = {*sys.modules}; import aioelastic._cli.run; print(*{*sys.modules} - before)"

    done = subprocess.run(
        [sys.executable, "-c", program], cwd=PACKAGE.parent, capture_output=True, text=True, check=True
    )

    heavy = {"torch", "psutil", "multiprocessing", "tempfile", "secrets", "anyio._backends._asyncio"}
    assert not set(done.stdout.split()) & heavy
