"""The fixture with anyio's plugin: tests and fixtures run in one task, and the loop is closed right after a test."""

import pytest

from tests.plugin.inner_runs import run_inner

pytest_plugins = ["pytester"]

SUITE = """
import asyncio, signal
import anyio, pytest
from groups import start

pytestmark = pytest.mark.anyio


@pytest.fixture(scope="module", params=["asyncio", "uvloop"])
def anyio_backend(request):
    return "asyncio", {"use_uvloop": request.param == "uvloop"}


@pytest.fixture(scope="module")
def kind(anyio_backend):
    return "uvloop" if anyio_backend[1]["use_uvloop"] else "asyncio"


@pytest.fixture(scope="module")
async def service(start_processes, kind):
    context = await start(start_processes, f"service_{kind}")
    yield context
    assert context.state.value == "running"  # by the time of our own tear-down, too


@pytest.fixture
async def returned(start_processes, kind):
    return await start(start_processes, f"returned_{kind}")


@pytest.fixture
async def torn_out(start_processes, kind):
    if kind == "uvloop":
        pytest.skip("uvloop keeps exceptions of signal handlers to itself")
    await start(start_processes, "torn_out")
    signal.setitimer(signal.ITIMER_REAL, 0.05, 10)  # again, as a callback may swallow it
    await asyncio.sleep(99)
    yield


async def test_passes(start_processes, kind):
    await start(start_processes, f"passes_{kind}")
    assert type(asyncio.get_running_loop()).__module__.startswith(kind)


@pytest.mark.timeout(60)
async def test_set_up_is_torn_out(service, torn_out):
    pass


@pytest.mark.timeout(60)
async def test_is_torn_out(service, returned, start_processes, kind):
    context = await start(start_processes, f"is_torn_out_{kind}")
    if kind == "asyncio":
        signal.setitimer(signal.ITIMER_REAL, 0.05, 10)  # again, as a callback may swallow it
        await context.wait()
        await asyncio.sleep(99)


async def test_is_late(service, start_processes, kind):
    context = await start(start_processes, f"is_late_{kind}")
    assert service.state.value == "running"
    with anyio.fail_after(0.05):
        await context.wait()
"""


NAMES = ("service", "returned", "passes", "is_torn_out", "is_late")

OUTCOMES = {
    "test_passes[asyncio]": "PASSED",
    "test_set_up_is_torn_out[asyncio]": "ERROR",
    "test_is_torn_out[asyncio]": "FAILED",
    "test_is_late[asyncio]": "FAILED",
    "test_passes[uvloop]": "PASSED",
    "test_is_torn_out[uvloop]": "PASSED",
    "test_is_late[uvloop]": "FAILED",
}


def test_every_group_is_closed_in_its_own_loop(pytester: pytest.Pytester) -> None:
    """Tests and fixtures that pass, fail or are torn out leave nothing, and each rank was asked to end."""
    run = run_inner(pytester, SUITE)

    groups = {f"{name}_{kind}" for name in NAMES for kind in ("asyncio", "uvloop")} | {"torn_out"}
    assert run.told == dict.fromkeys(groups, "up bye")
    assert run.left == []
    assert run.outcomes == OUTCOMES
