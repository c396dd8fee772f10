"""Four ranks read the standard library's sources; then one of four fails, and the root cause is shown.

    python docs/examples/quickstart.py

Each rank parses its share of the modules. Its stdout is teed: to a file, and with a prefix to this console. Its stderr
is redirected to a file. Lines that tell of a very long function are copied to one filtered file for all ranks.
"""

import ast
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from aioelastic import ChildFailedError, RunProcsResult, Std, record, start_processes

RANKS = 4
STDLIB = Path(ast.__file__).parent
LONG = 150


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Give the functions of a source file."""
    tree = ast.parse(path.read_bytes())
    return (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


@record
def survey(rank: int, folder: Path) -> None:
    """Be one rank: parse every fourth package or module of a folder, and say what is in it."""
    share = sorted(entry for entry in folder.iterdir() if entry.suffix == ".py" or (entry / "__init__.py").exists())
    if not share:
        raise FileNotFoundError(f"rank {rank} found no Python sources in {folder}")
    total = 0
    for entry in share[rank::RANKS]:
        paths = [entry] if entry.is_file() else [path for path in entry.rglob("*.py") if "test" not in str(path)]
        print(f"reading {len(paths)} files of {entry.name}", file=sys.stderr)
        for path in paths:
            for function in functions(path):
                total += 1
                lines = (function.end_lineno or 0) - function.lineno + 1
                if lines > LONG:
                    print(f"{path.relative_to(folder)}: {function.name} has {lines} lines (very long)", flush=True)
    print(f"{total} functions in {len(share[rank::RANKS])} modules and packages", flush=True)


async def run(name: str, folders: list[Path], logs: str) -> RunProcsResult:
    """Run one rank per folder to the end."""
    async with start_processes(
        name,
        sys.executable,
        args={rank: (__file__, "--rank", rank, folder) for rank, folder in enumerate(folders)},
        log_dir=logs,
        tee=Std.OUT,
        redirects=Std.ERR,
        duplicate_stdout_filters=["very long"],
    ) as context:
        return await context.wait()


async def main() -> None:
    """Run a group that succeeds, then one that fails."""
    logs = tempfile.mkdtemp(prefix="aioelastic-quickstart-")
    begin = time.monotonic()
    result = await run("reader", [STDLIB] * RANKS, logs)
    print(f"\nAll {RANKS} ranks succeeded in {time.monotonic() - begin:.1f} s. What they left:")
    for path in sorted(Path(logs).rglob("*.log")):
        print(f"  {len(path.read_bytes().splitlines()):5} lines  {path}")
    result.raise_for_failures()

    print("\nNow rank 2 gets a folder without sources, and the others are stopped:\n")
    with tempfile.TemporaryDirectory() as empty:
        result = await run("broken", [STDLIB, STDLIB, Path(empty), STDLIB], logs)
    for rank, each in sorted(result.exits.items()):
        print(f"  rank {rank}: exit code {each.exitcode}, {each.cause.value}")
    try:
        result.raise_for_failures()
    except ChildFailedError as error:
        print(f"\n{error}")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--rank"]:
        survey(int(sys.argv[2]), Path(sys.argv[3]))
    else:
        asyncio.run(main())
