"""Cases from the field about what lives on: each test is named after what must hold, and links the report."""

import socket
from pathlib import Path

import pytest

from tests.helpers.drivers import LOOPS
from tests.helpers.groups import python_group
from tests.helpers.survivors import doomed


@pytest.mark.parametrize("loop", LOOPS)
def test_a_killed_launcher_leaves_no_worker_and_no_helper(loop: str, tmp_path: Path) -> None:
    """Three ranks and a grandchild each are gone within three seconds of SIGKILL, and so is the guard.

    https://github.com/vllm-project/vllm/issues/55510, https://github.com/anthropics/claude-code/issues/26658
    """
    program = """
async def main():
    script = "sh -c 'trap \\"\\" TERM; sleep 60; sleep 60' & echo ready; trap '' TERM; while :; do sleep 60; done"
    context = await start_processes("job", "sh", dict.fromkeys(range(3), ("-c", script)), log_dir=sys.argv[2],
                                    redirects=Std.ALL)
    while any("ready" not in Path(path).read_text() for path in context.stdouts.values()):
        await asyncio.sleep(0.01)
    print("up", flush=True)
    await asyncio.sleep(60)
run(main)
"""
    with doomed(program, tmp_path, loop=loop) as supervisor:
        assert supervisor.line() == "up"
        assert len(supervisor.guards) == 1
        supervisor.kill()
        assert supervisor.until_gone() < 3


HOLDS_PORT = """
import os, socket, time
with socket.create_server(("127.0.0.1", {port})):
    if not os.fork():
        {leave}
        time.sleep(60)
    print("ready", flush=True)
    {end}
"""


@pytest.mark.parametrize("leave", ["pass", "os.setsid()"], ids=["in the session", "in its own"])
@pytest.mark.parametrize(
    "end", ["os._exit(3)", "os.kill(os.getpid(), 9)", "time.sleep(60)"], ids=["fails", "dies", "closed"]
)
@pytest.mark.half
async def test_the_next_attempt_finds_the_port_free(tmp_path: Path, leave: str, end: str) -> None:
    """A rank binds a port, leaves a grandchild that holds it, and crashes: the next group's rank binds it at once.

    https://github.com/dask/distributed/issues/1303, https://github.com/Unitech/pm2/issues/1715
    """
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    program = HOLDS_PORT.format(port=port, leave=leave, end=end)
    for attempt in range(2):
        async with python_group(tmp_path / str(attempt), program, cwd=tmp_path) as context:
            if end != "time.sleep(60)":
                result = await context.wait(timeout=20)
                assert result is not None
                assert list(result.failures) == [0]
