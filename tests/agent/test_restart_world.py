"""What an attempt finds that the one before did not."""

from pathlib import Path

import pytest

from aioelastic import (
    Backoff,
    DefaultLogsSpecs,
    EventKind,
    GroupState,
    LocalElasticAgent,
    RankStartError,
    Std,
    WorkerSpec,
)
from tests.helpers.agents import all_events, shell_agent
from tests.helpers.waiting import is_alive


def variables_of(path: Path) -> dict[str, str]:
    """Read the variables that a rank had."""
    pairs = (entry.partition("=") for entry in path.read_text().split("\0") if entry)
    return {name: value for name, _, value in pairs if name != "_"}


async def test_an_attempts_variables_differ_in_what_belongs_to_it_alone(tmp_path: Path) -> None:
    """Number, port, error file and token are the attempt's own; all else is the same, in each rank."""
    script = 'env -0 > "$TORCHELASTIC_RESTART_COUNT.$RANK"; exit $((1 - TORCHELASTIC_RESTART_COUNT))'
    logs = DefaultLogsSpecs(log_dir=tmp_path / "logs", redirects=Std.ALL)
    result = await shell_agent(script, cwd=tmp_path, logs_specs=logs).run()
    # In the first attempt one rank may have been stopped before it wrote anything.
    failed = next(iter(result.attempts[0].failures))

    before, after = (variables_of(tmp_path / f"{attempt}.{failed}") for attempt in (0, 1))
    assert {name for name in before | after if before.get(name) != after.get(name)} == {
        "TORCHELASTIC_RESTART_COUNT",
        "MASTER_PORT",
        "TORCHELASTIC_ERROR_FILE",
        "AIOELASTIC_RANK_TOKEN",
    }
    ports = {name: variables_of(tmp_path / name)["MASTER_PORT"] for name in ("1.0", "1.1")}
    assert len(set(ports.values())) == 1
    assert before["TORCHELASTIC_ERROR_FILE"].startswith(result.attempts[0].log_dir)
    assert after["TORCHELASTIC_ERROR_FILE"].startswith(result.attempts[1].log_dir)
    assert result.log_dir.endswith(after["TORCHELASTIC_RUN_ID"])


@pytest.mark.parametrize("what", ["program", "directory", "logs"])
async def test_an_attempt_that_cannot_start_ends_the_run(what: str, tmp_path: Path) -> None:
    """What the first attempt has removed is missed by the second: a typed error says so, and nothing is left."""
    folder, logs = tmp_path / "folder", tmp_path / "logs"
    folder.mkdir()
    program = tmp_path / "program"
    # Rank 0 fails; rank 1 would stay, and so would its daemon.
    program.write_text(
        f"#!/bin/sh\ntest $LOCAL_RANK = 1 && {{ setsid sleep 60 & echo $! > {tmp_path}/pid; exec sleep 60; }}\n"
        f"while ! [ -s {tmp_path}/pid ]; do sleep 0.01; done; $1; exit 1\n"
    )
    program.chmod(0o755)
    removals = {
        "program": f"rm {program}",
        "directory": f"rm -r {folder}",
        "logs": f"eval rm -r {logs}; touch {logs}",
    }
    spec = WorkerSpec(
        entrypoint=program,
        args=(removals[what],),
        local_world_size=2,
        backoff=Backoff(first=0),
        cwd=folder,
        logs_specs=DefaultLogsSpecs(log_dir=logs, redirects=Std.OUT),
    )
    agent = LocalElasticAgent(spec)
    events = agent.events()
    expected = {"program": RankStartError, "directory": FileNotFoundError, "logs": NotADirectoryError}
    with pytest.raises(expected[what], match=what if what == "program" else str(logs if what == "logs" else folder)):
        await agent.run()

    assert agent.state is GroupState.FAILED
    seen = await all_events(events)
    assert seen[-1].kind is EventKind.RUN_ENDED
    assert [each.attempt for each in seen if each.kind is EventKind.ATTEMPT_STARTED] == [0, 1]
    assert not is_alive(int((tmp_path / "pid").read_text()))
