"""The examples do what they say, run as a person runs them."""

import http.client
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from tests.helpers.command_lines import kill_all, surroundings
from tests.helpers.drivers import ROOT
from tests.helpers.survivors import MARK, Doomed
from tests.helpers.waiting import PATIENCE

EXAMPLES: Final = ROOT / "docs" / "examples"


@contextmanager
def begun(place: Path, name: str, *arguments: object, **variables: object) -> Iterator[Doomed]:
    """Run an example; whatever is left of it in the end is killed.

    Args:
        place: A directory for its temporary files.
        name: Its file.
        arguments: Its arguments.
        variables: Variables that it sees.
    """
    mark = uuid.uuid4().hex
    env = surroundings(TMPDIR=place, **{MARK: mark}, **variables)
    command = [sys.executable, "-u", str(EXAMPLES / name), *map(str, arguments)]
    streams: dict[str, Any] = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    with subprocess.Popen(command, env=env, **streams) as process:
        example = Doomed(process, mark)
        try:
            yield example
        finally:
            process.kill()
            kill_all(example.survivors)


def line_with(example: Doomed, text: str) -> str:
    """Read what an example prints, up to a line with a text."""
    while text not in (line := example.line()):
        pass
    return line


def rest_of(example: Doomed) -> str:
    """Read what an example prints, to its end."""
    printed, _ = example.process.communicate(timeout=PATIENCE)
    return printed.decode()


def sources(folder: Path) -> Path:
    """Make a folder with a source for each shard of the pipeline."""
    folder.mkdir()
    for number in range(3):
        (folder / f"source_{number}.py").write_text("import something\nsomething.happens()\n")
    return folder


def read_event(stream: http.client.HTTPResponse, kind: str, text: str = "") -> dict[str, Any]:
    """Read server-sent events up to one of a kind with a text, and give its data."""
    while line := stream.readline().decode():
        if line == f"event: {kind}\n" and text in (data := stream.readline().decode()):
            found: dict[str, Any] = json.loads(data.removeprefix("data: "))
            return found
    raise AssertionError(f"the stream has ended without a {kind} with {text!r}")


def pid_in(stand: dict[str, Any]) -> int:
    """Give the pid of a worker that runs."""
    found = re.match(r"runs, pid (\d+)", stand["words"])
    assert found is not None
    return int(found[1])


def test_a_browser_follows_a_worker_through_its_death_to_the_end_of_the_server(tmp_path: Path) -> None:
    """It gets the lines of a worker and of the next one; ^C ends the stream, the server and the workers."""
    with begun(tmp_path, "web_application.py", PORT=0) as server:
        found = re.search(r"http://127.0.0.1:(\d+)", line_with(server, "running on"))
        assert found is not None
        page = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=PATIENCE)
        page.request("GET", "/")
        assert b"EventSource" in page.getresponse().read()
        page.request("GET", "/workers/load/lines")
        stream = page.getresponse()
        first = pid_in(read_event(stream, "stand", "runs, pid"))
        read_event(stream, "line")

        os.kill(first, signal.SIGKILL)

        assert pid_in(read_event(stream, "stand", "SIGKILL)")) != first
        read_event(stream, "line")
        server.process.send_signal(signal.SIGINT)
        stream.read()
        page.close()
        assert "ERROR" not in rest_of(server)
        assert server.process.returncode == 0
        server.until_gone()
    assert list(tmp_path.iterdir()) == []


def test_the_pipeline_runs_a_stage_again(tmp_path: Path) -> None:
    """All stages succeed, one of them in its second attempt, and the last one has added up what the shards counted."""
    with begun(tmp_path, "pipeline.py", sources(tmp_path / "sources")) as pipeline:
        printed = rest_of(pipeline)

    assert "used most in 3 sources: {'something': 6, 'import': 3, 'happens': 3}" in printed
    assert re.search(r"^count .* succeeded; attempt 0: rank 1: OSError: shard 1 has a hiccup$", printed, re.MULTILINE)
    assert pipeline.process.returncode == 0


def test_a_stage_that_fails_ends_the_one_beside_it(tmp_path: Path) -> None:
    """Of two stages at the same time one fails for good: the other is stopped, and the summary has the root cause."""
    os.mkfifo(sources(tmp_path / "sources") / "endless.py")
    with begun(tmp_path, "pipeline.py", tmp_path / "sources", "--break") as pipeline:
        printed = rest_of(pipeline)
        pipeline.until_gone()

    assert "Root cause: rank 1" in printed
    assert re.search(r"^count .* failed; .*; attempt 1: rank 1: OSError: shard 1 has a hiccup$", printed, re.MULTILINE)
    assert re.search(r"^weigh .* stopped$", printed, re.MULTILINE)
    assert pipeline.process.returncode == 1


def test_an_interrupt_ends_all_stages_that_run(tmp_path: Path) -> None:
    """^C during two stages stops both, and begins no further one."""
    os.mkfifo(sources(tmp_path / "sources") / "endless.py")
    with begun(tmp_path, "pipeline.py", tmp_path / "sources") as pipeline:
        line_with(pipeline, "attempt 1")
        pipeline.process.send_signal(signal.SIGINT)
        printed = rest_of(pipeline)
        pipeline.until_gone()

    stages = dict(re.findall(r"^(\w+) .* s  (\w+)", printed, re.MULTILINE))
    assert stages == {"deal": "succeeded", "count": "stopped", "weigh": "stopped"}
    assert pipeline.process.returncode == 130


def test_nothing_of_a_tool_call_outlives_it(tmp_path: Path) -> None:
    """The agent is told how its calls ended, and no process is left of those that ran out of time or were cancelled."""
    with begun(tmp_path, "tool_agent.py") as agent:
        printed = rest_of(agent)
        agent.until_gone()

    answers = [json.loads(line) for line in printed.splitlines() if line.startswith("    {")]
    ends = [answer["status"] for answer in answers]
    assert ends == ["done", "done", "failed", "failed", "failed", "failed", "timed out after 0.5 s"]
    assert answers[4] == {"status": "failed", "error": "exit code 3", "output": ["9999", "10000", "that was all"]}
    assert re.findall(r"^processes left .*: (\d+)$", printed, re.MULTILINE) == ["0", "0"]
    assert agent.process.returncode == 0


def test_the_suite_of_a_user_passes(tmp_path: Path) -> None:
    """The suite that uses the fixture ``start_processes`` passes."""
    suite = shutil.copytree(EXAMPLES / "pytest_suite", tmp_path / "suite", ignore=shutil.ignore_patterns("__pycache__"))
    plugins = ("-p", "pytest_asyncio.plugin", "-p", "aioelastic.pytest_plugin")
    # Of the plugins that are installed here the suite needs two.
    env = surroundings(PYTEST_DISABLE_PLUGIN_AUTOLOAD=1, PYTHONDONTWRITEBYTECODE=1)
    command = [sys.executable, "-m", "pytest", "-q", *plugins]

    done = subprocess.run(command, cwd=suite, env=env, capture_output=True, text=True, check=False, timeout=100)

    assert "3 passed" in done.stdout, done.stdout
    assert "warning" not in done.stdout
