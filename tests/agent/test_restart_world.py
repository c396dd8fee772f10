"""What an attempt finds that the one before did not."""

from pathlib import Path

from aioelastic import DefaultLogsSpecs, Std
from tests.helpers.agents import shell_agent


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
