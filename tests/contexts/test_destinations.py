"""What a context makes of the destinations that somebody's own log specification gives."""

import json
from pathlib import Path
from typing import Any

import pytest

from aioelastic import LogsDest, RanksError, RankStartError, SpecificationError, SpecificationTypeError, start_processes
from tests.helpers.functions import give_all
from tests.helpers.log_specs import Own
from tests.helpers.programs import PYTHON, shells

WRITES_ITS_FILE = """printf '{"message": "lost"}' > "$TORCHELASTIC_ERROR_FILE"; echo out; exit 3"""
"""Fails, and says why in its error file."""


@pytest.mark.parametrize(
    ("dest", "error", "words"),
    [
        (None, SpecificationTypeError, r"reify\(\) must give a LogsDest, not NoneType"),
        ({}, SpecificationTypeError, r"reify\(\) must give a LogsDest, not dict"),
        (LogsDest(stdouts={2: "/x"}), RanksError, r"stdouts of logs_specs\.reify\(\) does not fit"),
        (LogsDest(stderrs=None), SpecificationTypeError, "stderrs of .* must map ranks to values"),  # type: ignore[arg-type]
        (LogsDest({1: None}), SpecificationTypeError, r"stdouts\[1\] of .* not NoneType"),  # type: ignore[dict-item]
        (LogsDest(error_files={0: 3}), SpecificationTypeError, r"error_files\[0\] of .* not int"),  # type: ignore[dict-item]
        (LogsDest(tee_stdouts={0: "a\0"}), SpecificationError, r"tee_stdouts\[0\] of .* has a NUL"),
        (LogsDest(error_files={1: "\ud800"}), SpecificationError, r"error_files\[1\] of .* no path can have"),
        (LogsDest(filtered_stderr=None), SpecificationTypeError, "filtered_stderr of .* not NoneType"),  # type: ignore[arg-type]
    ],
)
async def test_what_is_no_destination_is_refused(dest: Any, error: type[Exception], words: str, tmp_path: Path) -> None:
    """Nothing runs with destinations that cannot be used, and the error says which."""
    with pytest.raises(error, match=words):
        await start_processes("job", "touch", {0: (tmp_path / "0",), 1: (tmp_path / "1",)}, logs_specs=Own(dest))

    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("kind", [str, Path])
async def test_relative_paths_are_the_supervisors(
    kind: type[str] | type[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are taken from the supervisor's directory, also by a rank in another one, and after a change of it."""
    for place in ("ours", "theirs", "later"):
        (tmp_path / place).mkdir()
    monkeypatch.chdir(tmp_path / "ours")
    dest = LogsDest({0: kind("out.log")}, error_files={0: kind("error.json")})  # type: ignore[dict-item]

    async with start_processes(
        "job", "sh", shells(WRITES_ITS_FILE), logs_specs=Own(dest), cwd=tmp_path / "theirs"
    ) as context:
        monkeypatch.chdir(tmp_path / "later")
        result = await context.wait()

    assert result.failures[0].message == "lost"
    assert result.stdouts == {0: f"{tmp_path}/ours/out.log"}
    assert Path(result.stdouts[0]).read_text() == "out\n"
    assert not list((tmp_path / "theirs").iterdir())


async def test_an_earlier_attempts_error_is_not_this_ones(tmp_path: Path) -> None:
    """Where a specification gives the same error files again, each attempt's failure is its own, and all are kept."""
    program = "import aioelastic, sys\n@aioelastic.record\ndef main(): raise ValueError(sys.argv[1])\nmain()"
    specs = Own(LogsDest(error_files={0: f"{tmp_path}/0.json"}))
    messages = []
    for number in range(2):
        args = {0: ("-c", program, number)}
        async with start_processes("job", PYTHON, args, logs_specs=specs) as context:
            messages.append((await context.wait()).failures[0].message)
    async with start_processes("job", "sh", shells("exit 3"), logs_specs=specs) as context:
        messages.append((await context.wait()).failures[0].error_file)

    assert messages == ["ValueError: 0", "ValueError: 1", "<N/A>"]
    kept = [json.loads(path.read_bytes())["message"]["message"] for path in sorted(tmp_path.iterdir())]
    assert kept == ["ValueError: 0", "ValueError: 1"]


@pytest.mark.parametrize("entrypoint", ["sh", give_all])
async def test_an_unopenable_log_is_told_with_its_rank_and_command(entrypoint: Any, tmp_path: Path) -> None:
    """The error is the one of any start: rank, command, errno and directory, and nothing runs."""
    args: dict[int, tuple[str, ...]] = dict.fromkeys(range(2), ("-c", f"touch {tmp_path}/ran"))
    dest = LogsDest({1: "/no/such/folder/log"})

    with pytest.raises(FileNotFoundError, match=r"rank 1 could not open its log: .*/no/such/folder/log") as caught:
        await start_processes("job", entrypoint, args, logs_specs=Own(dest), cwd=tmp_path)

    assert isinstance(caught.value, RankStartError)
    assert caught.value.command == (("sh", *args[1]) if entrypoint == "sh" else ("tests.helpers.functions.give_all()",))
    assert caught.value.cwd == str(tmp_path)
    assert not list(tmp_path.iterdir())
