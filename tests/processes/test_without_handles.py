"""Where processes cannot be held by handle (macOS, a strict sandbox), the same is done by number."""

from pathlib import Path

import pytest

from aioelastic import ExitCause, Std, start_processes
from aioelastic._processes import child, process_handles
from tests.helpers.groups import shell_group, spoken_pid
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import is_alive


@pytest.fixture(autouse=True)
def without_handles(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take the handles away."""
    for module in (child, process_handles):
        monkeypatch.setattr(module, "has_handles", lambda: False)


async def test_a_failure_stops_the_others(tmp_path: Path) -> None:
    """Exits are seen, told apart and logged to the last line."""
    scripts = shells("echo last words; exit 3", SLEEP, "exit 0")
    async with start_processes("test", "sh", scripts, log_dir=tmp_path, tee={0: Std.OUT}) as context:
        result = await context.wait(timeout=30)

    assert result is not None
    assert list(result.failures) == [0]
    assert result.exits[0].exitcode == 3
    assert result.exits[1].cause is ExitCause.STOPPED
    assert Path(result.stdouts[0]).read_text() == "last words\n"


async def test_nothing_deaf_is_left_after_a_close(tmp_path: Path) -> None:
    """A child that ignores the signal is found and killed, after its leader as well."""
    deaf_child = "(trap '' TERM; echo child $(sh -c 'echo $PPID'); echo ready; while :; do sleep 60; done) & "
    async with shell_group(tmp_path, deaf_child + SLEEP) as context:
        left = spoken_pid(context, 0)
        await context.close(timeout=0.2)

        assert not is_alive(left)
