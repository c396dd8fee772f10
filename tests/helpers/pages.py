"""Reads the pages of the documentation, and runs what they show."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parent.parent.parent
PAGES: Final = tuple(
    page for page in sorted((ROOT / "docs").rglob("*.md")) if "examples" not in page.relative_to(ROOT).parts
)

_RUNS_PROGRAMS: Final = """
import os, runpy, sys
for program in sys.argv[1:]:
    print("== " + program, flush=True)
    sys.path[0] = os.path.dirname(program)
    os.chdir(sys.path[0])
    runpy.run_path(program, run_name="__main__")
    sys.stdout.flush()
"""
"""Runs programs one after the other: an interpreter for each would take longer than what they do."""


class Block(NamedTuple):
    """A fenced block of a page."""

    page: Path
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"

    @property
    def file_name(self) -> str | None:
        """The name of the file that it is to be saved as, if its first line says so."""
        named = re.match(r"# ([\w/]+\.(?:py|toml))\n", self.text)
        return named[1] if named else None


class Shown(NamedTuple):
    """What a page shows: a program or commands to be run, and what they print."""

    block: Block
    output: str


def blocks_of(page: Path) -> Iterator[Block]:
    """Give the fenced blocks of a page, in order."""
    text = page.read_text()
    for found in re.finditer(r"^```([^\n`]*)\n(.*?)^```$", text, re.DOTALL | re.MULTILINE):
        yield Block(page, text.count("\n", 0, found.start()) + 1, found[1].strip(), found[2])


def shown_by(page: Path, language: str) -> Iterator[Shown]:
    """Give what a page shows in a language, with the text block that comes next: what it prints."""
    blocks = list(blocks_of(page))
    for number, block in enumerate(blocks):
        following = blocks[number + 1] if number + 1 < len(blocks) else None
        if block.language == language and not (language == "python" and block.file_name):
            prints = following is not None and following.language == "text"
            yield Shown(block, following.text if following is not None and prints else "")


def run_pages(pages: list[Path], folder: Path) -> list[str]:
    """Run all programs and commands of some pages, each page in a folder of its own with the files that it names.

    Returns:
        What is not as the pages say.
    """
    programs: dict[str, Shown] = {}
    commands: dict[Path, dict[str, Shown]] = {}
    for number, page in enumerate(pages):
        place = folder / f"{number}_{page.stem}"
        place.mkdir()
        programs |= _programs_of(page, place)
        commands[place] = {
            f"line {each.block.line}": each for each in shown_by(page, "sh") if _program_alone(each) is None
        }
    # Programs first, as commands look at what they have left.
    problems = _compared([sys.executable, "-c", _RUNS_PROGRAMS, *programs], programs, folder)
    for place, shown in commands.items():
        script = "".join(f"echo '== {name}'\n{each.block.text}\n" for name, each in shown.items())
        problems += _compared(["bash", "-ec", script], shown, place)
    return problems


def _programs_of(page: Path, place: Path) -> dict[str, Shown]:
    """Save a page's blocks in a folder, and give the programs that are to be run: path -> what shows it."""
    programs = {}
    for block in blocks_of(page):
        if block.file_name:
            (place / block.file_name).parent.mkdir(exist_ok=True)
            (place / block.file_name).write_text(block.text)
    for shown in (*shown_by(page, "python"), *shown_by(page, "sh")):
        name = f"line_{shown.block.line}.py"
        if shown.block.language == "python":
            (place / name).write_text(shown.block.text)
        elif (alone := _program_alone(shown)) is not None:
            name = alone
        else:
            continue
        programs[str(place / name)] = shown
    return programs


def _program_alone(shown: Shown) -> str | None:
    """Give the program of a command that does nothing else than to run it."""
    found = re.fullmatch(r"python (\w+\.py)\n", shown.block.text)
    return found[1] if found else None


def _compared(command: list[str], shown: dict[str, Shown], folder: Path) -> list[str]:
    """Run a command that prints a line with ``==`` and a name before what each shown block prints."""
    if not shown:
        return []
    # "python" and "aioelastic" are those of the environment that the tests run in.
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "PYTHONWARNINGS": "error", "PYTHONDONTWRITEBYTECODE": "1"}
    environment.pop("OMP_NUM_THREADS", None)
    done = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=100
    )
    printed = re.split(r"^== (.*)\n", done.stdout, flags=re.MULTILINE)[1:]
    found = dict(zip(printed[::2], printed[1::2], strict=True))
    problems = [
        f"{each.block}: {problem}"
        for name, each in shown.items()
        for problem in differences(each.output, found.get(name, ""))
    ]
    if done.stderr or done.returncode != 0:
        last = shown[printed[-2]].block if printed else folder
        problems.append(f"{last}: status {done.returncode}, stderr: {done.stderr}")
    return problems


def differences(expected: str, printed: str) -> list[str]:
    """Compare what a page says with what was printed: lines of different ranks come in any order.

    ``...`` within a line stands for anything; alone in a line, for any other lines.
    """
    wanted, others = expected.splitlines(), printed.splitlines()
    problems = []
    # Those without a gap first, so that a line with one does not take theirs.
    for line in sorted(wanted, key=lambda line: "..." in line):
        pattern = re.escape(line).replace(re.escape("..."), ".*")
        match = next((other for other in others if re.fullmatch(pattern, other)), None)
        if match is not None:
            others.remove(match)
        elif line != "...":
            problems.append(f"not printed: {line!r}")
    if "..." in wanted:
        return problems
    return problems + [f"not expected: {line!r}" for line in others]
