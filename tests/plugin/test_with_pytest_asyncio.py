"""The fixture with pytest-asyncio: in each mode, at each scope, whatever becomes of a test."""

import pytest

from tests.plugin.inner_runs import run_inner, section

pytest_plugins = ["pytester"]

SUITE = """
import asyncio, os, signal
from pathlib import Path
import pytest, pytest_asyncio, uvloop
from groups import start

pytestmark = pytest.mark.asyncio
TORN_OUT = pytest.mark.skipif("os.environ['LOOP'] == 'uvloop'", reason="it keeps what signal handlers raise")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def service(start_processes):
    context = await start(start_processes, "service")
    yield context
    assert context.state.value == "running"  # by the time of our own tear-down, too


@pytest_asyncio.fixture
async def returned(start_processes):
    return await start(start_processes, "returned")


@pytest.fixture
def launch(start_processes):
    return lambda name: start(start_processes, name)


async def test_passes(start_processes):
    context = await start(start_processes, "passes")
    assert context.state.value == "running"


async def test_fails(start_processes):
    program = "echo one; echo two; echo wrong >&2; exit 3"
    context = await start_processes("failing", "sh", {0: ("-c", program), 1: ("-c", "sleep 99")})
    await start(start_processes, "fails")
    result = await context.wait()
    assert not result.is_failed()


class TestClass:
    @pytest_asyncio.fixture
    async def own(self, start_processes):
        self.context = await start(start_processes, "own")
        yield
        assert self.context.state.value == "running"

    async def test_by_fixtures(self, own, returned, launch):
        context = await launch("launched")
        assert {each.state.value for each in (self.context, returned, context)} == {"running"}


@pytest.mark.asyncio(loop_scope="module")
async def test_first_of_module(service, start_processes):
    assert service.state.value == "running"
    await start(start_processes, "first_of_module")


@pytest.mark.asyncio(loop_scope="module")
async def test_second_of_module(service):
    assert service.state.value == "running"
    assert Path("first_of_module.told").read_text().endswith("bye\\n")
    raise LookupError("of the test")


async def test_is_cancelled(start_processes):
    await start(start_processes, "is_cancelled")
    asyncio.current_task().cancel()
    await asyncio.sleep(99)


async def test_is_late(start_processes):
    context = await start(start_processes, "is_late", shutdown_timeout=4)
    async with asyncio.timeout(0.05):
        await context.wait()


@TORN_OUT
@pytest.mark.timeout(60, func_only=True)
async def test_is_torn_out(start_processes):
    context = await start(start_processes, "is_torn_out")
    signal.setitimer(signal.ITIMER_REAL, 0.05, 10)  # again, as a callback may swallow it
    await context.wait()
    await asyncio.sleep(99)


@TORN_OUT
@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.timeout(60, func_only=True)
async def test_is_torn_out_of_module(service, start_processes):
    context = await start(start_processes, "is_torn_out_of_module")
    signal.setitimer(signal.ITIMER_REAL, 0.05, 10)  # again, as a callback may swallow it
    await context.wait()
    await asyncio.sleep(99)


@pytest.mark.asyncio(loop_scope="module")
async def test_after_that(service, start_processes):
    assert service.state.value == "running"
    assert isinstance(asyncio.get_running_loop(), uvloop.Loop) == (os.environ["LOOP"] == "uvloop")


@pytest.mark.skipif("os.environ['LOOP'] == 'uvloop'", reason="it ends the run, and with it the others' summary")
async def test_is_interrupted(start_processes):
    await start(start_processes, "is_interrupted")
    signal.raise_signal(signal.SIGINT)
    await asyncio.sleep(99)


async def test_never_runs():
    pass
"""

CONFTEST = """
import asyncio, os, uvloop

def pytest_asyncio_loop_factories():
    return {"loop": uvloop.new_event_loop if os.environ["LOOP"] == "uvloop" else asyncio.new_event_loop}
"""

OUTCOMES = {
    "test_passes": "PASSED",
    "test_fails": "FAILED",
    "test_by_fixtures": "PASSED",
    "test_first_of_module": "PASSED",
    "test_second_of_module": "FAILED",
    "test_is_cancelled": "FAILED",
    "test_is_late": "FAILED",
    "test_is_torn_out": "FAILED",
    "test_is_torn_out_of_module": "FAILED",
    "test_after_that": "PASSED",
}

GROUPS = {
    *("passes", "fails", "own", "returned", "launched", "service", "first_of_module"),
    *("is_cancelled", "is_late", "is_torn_out", "is_torn_out_of_module", "is_interrupted"),
}

TORN_OUT = {"is_torn_out", "is_torn_out_of_module"}


@pytest.mark.parametrize("mode", ["strict", "auto"])
def test_every_group_is_closed_in_its_own_loop(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    """Tests that pass, fail, are cancelled, too late, or torn out leave nothing, and each rank was asked to end."""
    monkeypatch.setenv("LOOP", "asyncio" if mode == "strict" else "uvloop")
    pytester.makeconftest(CONFTEST)
    options = ["-n", "1"] if mode == "auto" else []

    run = run_inner(pytester, SUITE, *options, f"--asyncio-mode={mode}")

    not_in_mode = {"auto": TORN_OUT | {"is_interrupted"}, "strict": set()}
    assert run.told == dict.fromkeys(GROUPS - not_in_mode[mode], "up bye")
    assert run.left == []
    assert "Warning" not in run.output.partition("short test summary")[2]
    if mode == "strict":
        assert run.status == pytest.ExitCode.INTERRUPTED
        assert run.outcomes == OUTCOMES
        assert "wrong" in section(run.output, "rank 0 of failing: exit code 3")
        assert "one\ntwo" in section(run.output, "rank 0 of failing: exit code 3")
        assert "no output" in section(run.output, "rank 1 of failing: stopped by us")
        assert "\nup\n" in section(run.output, "rank 0 of service: running")
