"""What the fixture does beside closing: defaults, leaks, misuse, options; and what it costs where nobody uses it."""

import re
from pathlib import Path

import pytest

from tests.plugin.inner_runs import plugin_options, run_inner, section

pytest_plugins = ["pytester"]

LEFT_OVER = "setsid sh -c 'echo up >$0; exec sleep 98' $0 & until test -s $0; do sleep 0.01; done"
"""A rank that leaves a daemon behind."""

SUITE = f'''
import asyncio, gc, threading
from pathlib import Path
import aioelastic, pytest, pytest_asyncio
from aioelastic import Std
from aioelastic.pytest_plugin import StartProcesses
from hypothesis import given, settings, strategies
from groups import start

LEFT_OVER = {LEFT_OVER!r}


async def test_asks_in_its_body(request):
    await start(request.getfixturevalue("start_processes"), "in_body")


async def leave_something(start_processes, path):
    context = await start_processes("leaky", "sh", {{0: ("-c", LEFT_OVER, path)}}, sweep_descendants=False)
    assert not (await context.wait()).is_failed()


async def test_leaves_something(start_processes, tmp_path):
    await leave_something(start_processes, tmp_path / "up")


@pytest.mark.xfail
async def test_fails_and_leaves_something(start_processes, tmp_path):
    await leave_something(start_processes, tmp_path / "up")
    raise LookupError


async def test_many(start_processes):
    program = 'test $0 = 9 && exit 1; exec sleep 99'
    context = await start_processes("many", "sh", {{rank: ("-c", program, rank) for rank in range(10)}})
    await context.wait()
    raise LookupError


def test_does_not_await(start_processes):
    start_processes("forgotten", "true", {{0: ()}})


def test_awaits_elsewhere(start_processes):
    with pytest.raises(aioelastic.ContextStateError, match="outside of asyncio"):
        start_processes("elsewhere", "true", {{0: ()}}).send(None)


def test_runs_a_loop(start_processes):
    context = asyncio.run(start(start_processes, "runs_a_loop"))
    assert context.state.value == "stopped"


def test_runs_a_loop_in_a_thread(start_processes):
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    asyncio.run_coroutine_threadsafe(start(start_processes, "in_a_thread"), loop).result()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_closes_a_loop(start_processes):
    loop = asyncio.new_event_loop()
    # The guard holds the group; else its task, of a loop that is closed, is collected with warnings in a later test.
    loop.run_until_complete(start(start_processes, "closes_a_loop", orphan_guard=True))
    loop.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_what_that_loop_left_is_garbage():
    gc.collect()  # here, and not in a later test


@given(strategies.integers(0, 3))
@settings(max_examples=3, deadline=None)
async def test_property(start_processes, number):
    context = await start_processes("property", "sleep", {{0: (99,)}})
    assert len([each for each in asyncio.all_tasks() if each.get_name() == "aioelastic: property"]) == 1


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def pool(start_processes):
    """Starts groups in a task of its own, on demand of the tests."""
    demands, given = asyncio.Queue(), asyncio.Queue()

    async def serve():
        while name := await demands.get():
            given.put_nowait(await start(start_processes, name))

    async def demand(name):
        demands.put_nowait(name)
        return await given.get()

    task = asyncio.create_task(serve())
    yield demand
    task.cancel()


@pytest.mark.asyncio(loop_scope="session")
async def test_demands(pool):
    pool.context = await pool("of_pool")


@pytest.mark.asyncio(loop_scope="session")
async def test_what_it_demanded_belongs_to_the_fixture(pool):
    assert pool.context.state.value == "running"


@pytest.mark.asyncio(loop_scope="session")
async def test_leaves_a_task(start_processes):
    async def start_when_it_is_over():
        await over.wait()
        return await start(start_processes, "of_a_task")

    test_leaves_a_task.over = over = asyncio.Event()
    test_leaves_a_task.task = asyncio.create_task(start_when_it_is_over())


@pytest.mark.asyncio(loop_scope="session")
async def test_what_that_task_starts_ends_with_this_test():
    test_leaves_a_task.over.set()
    assert (await test_leaves_a_task.task).state.value == "running"


async def test_defaults(start_processes: StartProcesses, tmp_path, capfd):
    plain = await start_processes("plain", "sleep", {{0: (99,)}})
    assert plain._shutdown_timeout == 20
    teed = await start_processes("teed", "echo", {{0: ("hello",)}}, tee=Std.OUT, log_dir=tmp_path / "logs")
    bare = await start_processes("bare", "echo", {{0: ("inherited",)}}, redirects=Std.NONE)
    await asyncio.gather(teed.wait(), bare.wait())
    assert str(tmp_path) not in plain.stdouts[0]
    assert not list(tmp_path.glob("*plain*")) and "defaults" in plain.stderrs[0]
    assert Path(teed.stdouts[0]).read_text() == "hello\\n"
    assert (bare.stdouts[0], teed.stderrs[0]) == ("", "")
    assert {{*capfd.readouterr().out.split()}} == {{"[teed0]:hello", "inherited"}}
'''


def test_what_it_sees_and_says(pytester: pytest.Pytester) -> None:
    """Leaks and misuse fail a test in plain words, and a loop of the test's own is used as far as it can be."""
    run = run_inner(pytester, SUITE, ini="asyncio_mode = auto\naioelastic_shutdown_timeout = 20\n")

    assert run.outcomes == {
        "test_asks_in_its_body": "PASSED",
        "test_leaves_something": "FAILED",
        "test_fails_and_leaves_something": "XFAIL ERROR",
        "test_many": "FAILED",
        "test_does_not_await": "FAILED",
        "test_awaits_elsewhere": "PASSED",
        "test_runs_a_loop": "PASSED",
        "test_runs_a_loop_in_a_thread": "PASSED",
        "test_closes_a_loop": "FAILED",
        "test_what_that_loop_left_is_garbage": "PASSED",
        "test_property": "PASSED",
        "test_demands": "PASSED",
        "test_what_it_demanded_belongs_to_the_fixture": "PASSED",
        "test_leaves_a_task": "PASSED",
        "test_what_that_task_starts_ends_with_this_test": "PASSED",
        "test_defaults": "PASSED",
    }
    assert run.left == []
    closed = dict.fromkeys(("in_body", "in_a_thread", "of_pool", "of_a_task"), "up bye")
    assert run.told == {"runs_a_loop": "up", "closes_a_loop": "up", **closed}
    for words in (
        r"<SubprocessContext 'leaky': succeeded.*> left something behind.*1 process was alive, killed now:",
        r"  rank 0, pid \d+: sleep 98",
        r"<SubprocessContext 'closes_a_loop': running.*> could not be closed: its event loop was closed",
        r"start_processes\('forgotten', ...\) was called and not awaited",
    ):
        assert re.search(words, run.output), words
    assert "ended with exit code 1" in section(run.output, "rank 9 of many: exit code 1")
    assert section(run.output, "2 more ranks") == "rank 7 of many: stopped by us\nrank 8 of many: stopped by us\n"


UNUSED = """
import sys

def test_nothing(): pass

def test_modules(pytestconfig):
    assert [name for name in sys.modules if name.startswith("aioelastic")] == [
        "aioelastic", "aioelastic.pytest_plugin",
    ]
    assert not {"anyio", "asyncio", "psutil"} & {*sys.modules}
"""


def test_it_costs_nothing_where_it_is_not_used(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run without the fixture imports nothing but the plugin's own module."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")

    run = run_inner(pytester, UNUSED)

    assert run.outcomes == {"test_nothing": "PASSED", "test_modules": "PASSED"}, run.output


@pytest.mark.parametrize("value", ["soon", "-1", "nan", "inf"])
def test_a_bad_value_of_the_option_is_refused_at_the_start(pytester: pytest.Pytester, value: str) -> None:
    """The option must be a number of seconds."""
    pytester.makeini("[pytest]\nasyncio_default_fixture_loop_scope = function\n")

    with pytest.raises(pytest.UsageError, match=r"aioelastic_shutdown_timeout is .*: give a number of seconds"):
        pytester.parseconfigure(*plugin_options(), "-o", f"aioelastic_shutdown_timeout={value}")


def test_the_guide_is_right(pytester: pytest.Pytester) -> None:
    """The suites of the guide end as it says, and the report that it shows is the one that one gets."""
    guide = (Path(__file__).parents[2] / "docs" / "how-to" / "test-with-pytest.md").read_text()
    for program in re.findall(r"```python\n# (\w+)\.py\n(.*?)```", guide, re.DOTALL):
        pytester.makepyfile(**dict([program]))
    shown = re.findall(r"```text\n(.*?)```", guide, re.DOTALL)[0]

    run = run_inner(pytester, "")

    assert run.outcomes == {
        "test_it_is_up": "PASSED",
        "test_it_is_the_same_one": "PASSED",
        "test_all_workers_succeed": "PASSED",
        "test_the_second_worker_finds_its_input": "FAILED",
    }
    printed = re.sub(r"PID \d+", "PID 4711", re.sub(r"/\S+(/run-)\S+?/", r"...\1.../", run.output))
    assert [line.strip("-") for line in shown.splitlines()] == [
        line.strip("-")
        for line in printed.splitlines()
        if line.strip("-") in {each.strip("-") for each in shown.splitlines()}
    ]
