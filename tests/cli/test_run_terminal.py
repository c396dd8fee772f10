"""``aioelastic run`` under a real terminal, with a person who looks, types and leaves."""

import json
import re
from pathlib import Path

import pytest

from tests.helpers.command_lines import SHELLS, Terminal, run_command, surroundings
from tests.helpers.supervisors import wait_until

FAILS_ONCE = """\
echo "first of $RANK"
echo "second of $RANK" >&2
[ $TORCHELASTIC_RESTART_COUNT = 1 ] && exit 0
while ! [ -e go ]; do sleep 0.02; done
[ $RANK = 1 ] && exit 3
exec sleep 60
"""
"""Has rank 1 of the first attempt fail as soon as there is a file ``go``."""

LISTENS = """\
for each in INT QUIT HUP; do trap "echo heard $each; echo $each >> heard.$RANK" $each; done
echo "rank $RANK is ready"
while ! [ -e go ]; do sleep 0.02; done
"""
"""Says of each signal that it came, and stays until there is a file ``go``."""


def terminal(folder: Path, *words: object, **variables: object) -> Terminal:
    """Run the command with its working directory, and its temporary ones, in a folder."""
    env = surroundings(TMPDIR=folder, **variables)
    return Terminal(run_command(*words), env, columns=200, cwd=folder)


def both_heard(folder: Path, name: str) -> bool:
    """Tell whether both ranks got a signal, and got it once."""
    heard = [path.read_text() for path in folder.glob("heard.*")]
    return heard == [f"{name}\n"] * 2


def test_a_person_follows_a_run_that_fails_once(tmp_path: Path) -> None:
    """Lines have coloured prefixes, the status advances and tears none, what fails is told, and a summary is the end.

    The logs that it names have the whole output and the events.
    """
    with terminal(tmp_path, *SHELLS, "--max-restarts", 1, "sh", "-c", FAILS_ONCE) as console:
        console.until("second of 0", "second of 1")
        wait_until(lambda: len(set(re.findall(r" · 2 of 2 ranks up · (\d+) s", console.shown))) == 2, "the next second")
        (tmp_path / "go").touch()
        assert console.status() == 0
        shown, rows = console.shown, console.rows

    assert "\x1b[36m[default0]:\x1b[0mfirst of 0\r\n" in shown
    assert "\x1b[33m[default1]:\x1b[0msecond of 1\r\n" in shown
    assert "\x1b[1;32msucceeded\x1b[0m" in shown
    output = [row for row in rows if row.startswith("[")]
    once = [f"[default{rank}]:{word} of {rank}" for rank in range(2) for word in ("first", "second")]
    assert sorted(output) == sorted(once * 2)
    failed, *attempts, end, logs, last = [row for row in rows if not row.startswith("[")]
    told = r"aioelastic: attempt 0 failed \(rank 1: exit code 3\); attempt 1 begins in \d\.\d+ s \(restart 1 of 1\)"
    assert re.fullmatch(told, failed)
    assert [re.sub(r"[\d.]+ s\b", "T s", row) for row in attempts] == [
        "attempt 0: rank 1 failed (exit code 3) after T s",
        "attempt 1, after T s of waiting: succeeded after T s",
    ]
    assert re.fullmatch(r"default succeeded after \d\.\d s, 2 attempts", end)
    directory = Path(logs.removeprefix("logs: "))
    assert directory.parent.parent == tmp_path
    assert (directory / "attempt_1/0/stdout.log").read_text() == "first of 0\n"
    events = [json.loads(line) for line in (directory / "events.jsonl").read_text().splitlines()]
    assert (events[0]["kind"], events[-1]["kind"]) == ("attempt started", "run ended")
    assert last == ""


@pytest.mark.parametrize(
    ("words", "variables", "controls"),
    [((), {"NO_COLOR": "1"}, {"\r\x1b[K"}), (("--no-color",), {"TERM": "dumb"}, set())],
    ids=["NO_COLOR", "dumb"],
)
@pytest.mark.half
def test_without_colours_there_are_none(
    tmp_path: Path, words: tuple[str, ...], variables: dict[str, str], controls: set[str]
) -> None:
    """A person who wants none sees no colours, and a terminal that can do nothing is sent nothing but lines."""
    with terminal(tmp_path, *words, *SHELLS, "sh", "-c", "echo hello; exit 3", **variables) as console:
        assert console.status() == 3
        rows = console.rows

    assert set(re.findall(r"\r?\x1b\[[^a-zA-Z]*[a-zA-Z]|\r(?!\n)", console.shown)) == controls
    assert "[default0]:hello" in rows
    assert any(re.fullmatch(r"default failed after \d\.\d s", row) for row in rows)


@pytest.mark.one_of("keys", "name", "status")
@pytest.mark.parametrize(
    ("keys", "name", "status"), [(b"\x03", "INT", 130), (b"\x1c", "QUIT", 131)], ids=["^C", "^backslash"]
)
def test_a_key_that_interrupts_stops_the_ranks_in_good_order(
    tmp_path: Path, keys: bytes, name: str, status: int
) -> None:
    """What was typed is answered with a word, each rank gets it exactly once, and may end as it likes."""
    with terminal(tmp_path, *SHELLS, "--max-restarts", 3, "sh", "-c", LISTENS) as console:
        console.until("rank 0 is ready", "rank 1 is ready")
        console.type(keys)
        console.until(f"aioelastic: SIG{name}: the ranks are being stopped", f"stopping (SIG{name})")
        console.until(f"[default0]:\x1b[0mheard {name}", f"[default1]:\x1b[0mheard {name}")
        (tmp_path / "go").touch()
        assert console.status() == status
        rows = console.rows

    assert both_heard(tmp_path, name)
    assert sum(row.startswith("aioelastic:") for row in rows) == 1
    assert re.fullmatch(r"default stopped after \d\.\d s", rows[-3])
    assert rows[-1] == ""


def test_a_closed_window_ends_everything(tmp_path: Path) -> None:
    """When the terminal is gone the ranks hear of it once, have their grace, and nothing of the run lives on."""
    ignoring = f"(trap '' HUP; exec sleep 97) & {LISTENS}"
    with terminal(tmp_path, *SHELLS, "--shutdown-timeout", 0.3, "sh", "-c", ignoring) as console:
        console.until("rank 0 is ready", "rank 1 is ready")
        assert len(console.family.survivors) >= 4
        console.hang_up()
        wait_until(lambda: both_heard(tmp_path, "HUP"), "the ranks")
        assert console.process.wait(20) == 129
        console.family.until_gone()

    assert both_heard(tmp_path, "HUP")
