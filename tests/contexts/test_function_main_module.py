"""Functions of the main module, which new processes import again: scripts, modules, ``python -c``, standard input."""

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.helpers.drivers import driver_environment
from tests.helpers.function_groups import METHODS
from tests.helpers.waiting import is_alive

pytestmark = [pytest.mark.one_method, pytest.mark.half]

PICKLING: Final = ("spawn", "forkserver")
"""The methods that import the main module again."""

IMPORTS: Final = """
import asyncio, json, os, sys
from pathlib import Path
from aioelastic import SpecificationError, start_processes

async def result_of(function, *args, **options):
    async with start_processes("job", function, dict(enumerate(args)), log_dir=os.devnull, **options) as context:
        return await context.wait(timeout=30)

def values_of(*args, **options):
    result = asyncio.run(result_of(*args, start_method=sys.argv[1], **options))
    return result.return_values or [each.message for each in result.failures.values()]
"""
"""What the programs here begin with."""

GUARDED: Final = """
WHERE = os.environ.get("WHERE", "nowhere")

def work(number):
    return number * 2, __name__, WHERE

if __name__ == "__main__":
    envs = {0: {"WHERE": "here"}, 1: {"WHERE": "there"}}
    print(values_of(work, (1,), (2,), envs=envs))
"""
"""A program as it should be; its module asks for a variable on import."""

UNGUARDED: Final = """
with open("imports", "a") as file:
    file.write(f"{os.getpid()}\\n")

def work(number):
    return number * 2

print(values_of(work, (1,), (2,), (3,)))
"""
"""A program without a guard."""

WITHOUT_CLOUDPICKLE: Final = f"""
import sys
sys.modules["cloudpickle"] = None
{IMPORTS}
def work(number):
    return number * 2

try:
    values_of(work, (1,))
except SpecificationError as error:
    print(error)
"""
"""A program that cannot give its function to a new process."""


def run_program(folder: Path, words: Sequence[str], stdin: str = "") -> str:
    """Run Python in a folder to a good end, and give what it printed."""
    done = subprocess.run(
        [sys.executable, *words],
        cwd=folder,
        env=driver_environment(),
        input=stdin,
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_script(folder: Path, program: str, method: str) -> str:
    """Run a program of the user's from its file, and give what it printed."""
    (folder / "script.py").write_text(IMPORTS + program)
    return run_program(folder, ["script.py", method])


def run_without_file(folder: Path, program: str, method: str, how: str) -> str:
    """Run a program given by ``-c``, or on standard input for ``-``, and give what it printed."""
    return run_program(folder, ["-c", program, method]) if how == "-c" else run_program(folder, ["-", method], program)


@pytest.mark.parametrize("method", METHODS)
def test_a_script_with_a_guard_works(tmp_path: Path, method: str) -> None:
    """A function of the main module runs in each rank, whose variables are there when that is imported again."""
    name = "__main__" if method == "fork" else "__mp_main__"
    places = ["nowhere"] * 2 if method == "fork" else ["here", "there"]
    expected = {0: (2, name, places[0]), 1: (4, name, places[1])}

    assert run_script(tmp_path, GUARDED, method) == f"{expected}\n"


@pytest.mark.parametrize("method", METHODS)
def test_a_module_run_by_its_name_works(tmp_path: Path, method: str) -> None:
    """``python -m package.script`` is found again by its name, and its relative imports work."""
    package = tmp_path / "package"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "other.py").write_text("FACTOR = 2\n")
    program = GUARDED.replace("number * 2", "number * FACTOR")
    (package / "script.py").write_text(f"{IMPORTS}from .other import FACTOR\n{program}")

    assert run_program(tmp_path, ["-m", "package.script", method]).startswith("{0: (2, ")


@pytest.mark.parametrize("method", PICKLING)
def test_a_main_module_that_fails_on_import_fails_the_ranks(tmp_path: Path, method: str) -> None:
    """What its import raises in a rank is that rank's failure."""
    program = 'if __name__ != "__main__":\n    raise LookupError("only once")\n' + GUARDED
    assert run_script(tmp_path, program, method).startswith("['LookupError: only once'")


@pytest.mark.parametrize("method", PICKLING)
def test_a_script_without_a_guard_is_told_so(tmp_path: Path, method: str) -> None:
    """Each rank that imports it fails with one error that names the remedy, and there are only the ranks asked for."""
    said = run_script(tmp_path, UNGUARDED, method)

    failures = said.count("ContextStateError: start_processes() was called while a rank was importing the main module")
    assert 1 <= failures == said.count("put what the program does under `if __name__ == '__main__':`") <= 3
    imports = (tmp_path / "imports").read_text().splitlines()
    assert 2 <= len(imports) == len(set(imports)) <= 4
    assert not any(is_alive(int(pid)) for pid in imports)


def test_a_fork_needs_no_guard(tmp_path: Path) -> None:
    """Nothing is imported again."""
    assert run_script(tmp_path, UNGUARDED, "fork") == "{0: 2, 1: 4, 2: 6}\n"
    assert len((tmp_path / "imports").read_text().splitlines()) == 1


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("how", ["-c", "-"])
def test_a_main_module_that_is_no_file_works(tmp_path: Path, method: str, how: str) -> None:
    """With cloudpickle, functions of ``python -c`` and of a program on standard input run in ranks."""
    assert run_without_file(tmp_path, IMPORTS + GUARDED, method, how).startswith("{0: (2, ")


@pytest.mark.parametrize("method", PICKLING)
@pytest.mark.parametrize("how", ["-c", "-"])
def test_without_cloudpickle_it_is_refused(tmp_path: Path, method: str, how: str) -> None:
    """One clear error, which names three remedies."""
    assert run_without_file(tmp_path, WITHOUT_CLOUDPICKLE, method, how) == (
        "rank 0 cannot be given its call of __main__.work(): the program's main module cannot be imported again "
        "(a notebook, python -c), so the function has to travel whole: install cloudpickle, move it into a module, "
        "or use start_method='fork'\n"
    )
