"""Cases from the field about signals to the supervisor: a test is named after what must hold, and links the report."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.helpers.command_lines import Terminal
from tests.helpers.drivers import LOOPS, driver_command, driver_environment, run_driver
from tests.helpers.supervisors import wait_until

each_loop = pytest.mark.parametrize("loop", LOOPS)

COUNTS = (
    'for each in TERM INT HUP QUIT; do trap "echo heard $each" $each; done; echo ready; while :; do sleep 0.05; done'
)
"""Says of each signal that it came, and stays."""

FORWARDS = f"""
COUNTS = {COUNTS!r}

async def forward(ranks=3, number=None, **options):
    args = dict.fromkeys(range(ranks), ("-c", COUNTS))
    async with start_processes("job", "sh", args, log_dir=sys.argv[2], redirects=Std.ALL, **options) as context:
        async with forward_signals(context) as forwarded:
            while not all(Path(path).read_text() == "ready\\n" for path in context.stdouts.values()):
                await asyncio.sleep(0.01)
            if number is None:
                print("ready", flush=True)
                Path(sys.argv[2], "ready").touch()
            else:
                os.kill(os.getpid(), number)
            result = await context.wait()
    assert {{each.cause for each in result.exits.values()}} == {{ExitCause.STOPPED}}, result
    return result, [each.name for each in forwarded.received]
"""
"""Begins a driver that has ``forward``: ranks that stay whatever they hear, with signals forwarded to them."""


def terminal(program: str, loop: str, *arguments: object) -> Terminal:
    """Run a driver under a terminal; it is killed at the end if it is still there."""
    return Terminal(driver_command(program, loop, *arguments), driver_environment())


def heard(logs: Path) -> list[str]:
    """Give what each rank has written."""
    return [path.read_text() for path in sorted(logs.glob("*/attempt_0/*/stdout.log"))]


PRESSES = f"""{FORWARDS}
async def main():
    result, names = await forward(shutdown_timeout=30)
    print("over:", *names, end=", ")
    print(*{{each.signal for each in result.exits.values()}}, end=".\\n", flush=True)
run(main)
"""


@each_loop
@pytest.mark.parametrize(("keys", "first"), [(b"\x03", "INT"), (b"\x1c", "QUIT")], ids=["^C", "^backslash"])
@pytest.mark.half
def test_a_second_interrupt_hurries_the_stop(loop: str, tmp_path: Path, keys: bytes, first: str) -> None:
    """Of two ^C typed at a terminal the first reaches each rank once, and the second one ends all, despite the grace.

    https://github.com/circus-tent/circus/issues/167
    """
    with terminal(PRESSES, loop, tmp_path) as console:
        console.until("ready")
        console.type(keys)
        wait_until(lambda: heard(tmp_path) == [f"ready\nheard {first}\n"] * 3, "the first signal")
        time.sleep(0.2)
        assert console.process.poll() is None
        began = time.monotonic()
        console.type(b"\x03")
        console.until(".\r\n")
        assert time.monotonic() - began < 2
        assert console.process.wait(10) == 0, console.shown

        assert f"over: SIG{first} SIGINT, SIGKILL." in console.shown
        assert "Traceback" not in console.shown
        assert heard(tmp_path) == [f"ready\nheard {first}\n"] * 3


@each_loop
def test_a_closed_terminal_ends_the_ranks(loop: str, tmp_path: Path) -> None:
    """When the terminal's window is closed the ranks hear of it, have their grace, and are gone.

    https://github.com/circus-tent/circus/issues/167
    """
    program = f"""{FORWARDS}
async def main():
    result, names = await forward(shutdown_timeout=0.3)
    Path(sys.argv[2], "over").write_text(f"{{names}}")
run(main)
"""
    with terminal(program, loop, tmp_path) as console:
        # The word on the terminal can be seen before the program has done with writing it.
        wait_until((tmp_path / "ready").exists, "the ranks")
        console.hang_up()
        wait_until((tmp_path / "over").exists, "the end")
        console.process.wait(10)

    assert (tmp_path / "over").read_text() == "['SIGHUP']"
    assert heard(tmp_path) == ["ready\nheard HUP\n"] * 3


@each_loop
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT])
@pytest.mark.half
def test_a_signal_from_elsewhere_wakes_an_idle_supervisor(loop: str, tmp_path: Path, number: signal.Signals) -> None:
    """A loop that sleeps, with nothing else going on, forwards at once, and the program ends by itself.

    https://github.com/circus-tent/circus/issues/167
    """
    program = f"""{FORWARDS}
async def main():
    result, names = await forward(shutdown_timeout=0.2)
    print(names, flush=True)
run(main)
"""
    with subprocess.Popen(
        driver_command(program, loop, tmp_path), env=driver_environment(), stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready")
            time.sleep(0.1)
            process.send_signal(number)
            began = time.monotonic()
            rest = process.stdout.read()
            assert process.wait(10) == 0
        finally:
            process.kill()

    assert time.monotonic() - began < 5
    assert rest == f"['{number.name}']\n"
    assert heard(tmp_path) == [f"ready\nheard {number.name[3:]}\n"] * 3


@each_loop
def test_after_the_block_an_interrupt_is_pythons_again(loop: str) -> None:
    """Within the block ^C ends the group and nothing else; after it the program's run is cancelled as without us.

    https://github.com/circus-tent/circus/issues/167
    """
    program = """
async def main():
    before = signal.getsignal(signal.SIGINT)
    async with start_processes("job", "sleep", {0: (60,)}) as context, forward_signals(context) as forwarded:
        os.kill(os.getpid(), signal.SIGINT)
        result = await context.wait()
    assert result.exits[0].signal == "SIGINT" and forwarded.received == (signal.SIGINT,), result
    assert signal.getsignal(signal.SIGINT) is before
    os.kill(os.getpid(), signal.SIGINT)
    try:
        await asyncio.sleep(20)
    except asyncio.CancelledError:
        print("cancelled")
        raise
try:
    run(main)
except KeyboardInterrupt:
    print("interrupted")
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
"""
    assert run_driver(program, loop) == "cancelled\ninterrupted\n"


@each_loop
def test_off_the_main_thread_forwarding_warns_and_starting_works(loop: str) -> None:
    """In a thread's own loop the block has no effect but a warning, no handler changes, and the group works.

    https://github.com/pytorch/pytorch/issues/135088
    """
    program = """
import threading, warnings
def work():
    async def main():
        before = {number: signal.getsignal(number) for number in signal.valid_signals()}
        async with start_processes("job", "sh", {0: ("-c", "exit 3"), 1: ("-c", "exec sleep 60")}) as context:
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                async with forward_signals(context) as forwarded:
                    assert before == {number: signal.getsignal(number) for number in signal.valid_signals()}
                    result = await context.wait()
        [warning] = caught
        assert warning.category is RuntimeWarning and warning.filename == "<string>", warning
        print(result.exits[0].exitcode, result.exits[1].signal, forwarded.received, warning.message)
    run(main)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""
    assert run_driver(program, loop) == (
        "3 SIGTERM () forward_signals() has no effect on context 'job': only a program's main thread can handle "
        "signals\n"
    )


@each_loop
def test_the_main_thread_forwards_to_a_group_while_threads_work(loop: str, tmp_path: Path) -> None:
    """With busy threads of the program's own a signal is forwarded as well.

    https://github.com/pytorch/pytorch/issues/135088
    """
    program = f"""{FORWARDS}
import threading
ended = threading.Event()
def work():
    while not ended.is_set():
        sum(range(1000))
async def main():
    result, names = await forward(1, signal.SIGTERM, shutdown_timeout=0.2)
    ended.set()
    print(names)
threads = [threading.Thread(target=work) for _ in range(3)]
for thread in threads:
    thread.start()
run(main)
"""
    assert run_driver(program, loop, tmp_path) == "['SIGTERM']\n"


@each_loop
def test_what_nohup_ignores_is_not_forwarded(loop: str, tmp_path: Path) -> None:
    """Under nohup a hangup does nothing, to supervisor and ranks, and SIGTERM still ends them.

    https://github.com/circus-tent/circus/issues/167
    """
    program = """
async def main():
    script = "trap 'exit 0' TERM; echo ready; while :; do sleep 0.05; done"
    async with start_processes("job", "sh", {0: ("-c", script)}, log_dir=sys.argv[2], redirects=Std.ALL) as context:
        while not Path(context.stdouts[0]).read_text():
            await asyncio.sleep(0.01)
        async with forward_signals(context) as forwarded:
            os.kill(os.getpid(), signal.SIGHUP)
            assert await context.wait(0.2) is None
            os.kill(os.getpid(), signal.SIGTERM)
            result = await context.wait()
    print(result.exits[0].exitcode, forwarded)
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
run(main)
assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
"""
    assert run_driver(program, loop, tmp_path, shell="trap '' HUP") == "0 <ForwardedSignals: SIGTERM>\n"


@each_loop
def test_what_c_code_handles_is_left_to_it(loop: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal whose handler Python does not know (here `faulthandler`'s) is not touched, and a warning names it.

    https://github.com/circus-tent/circus/issues/167
    """
    monkeypatch.setenv("PYTHONFAULTHANDLER", "1")
    program = """
import warnings
async def main():
    assert signal.getsignal(signal.SIGABRT) is None
    async with start_processes("job", "sleep", {0: (60,)}) as context:
        try:
            async with forward_signals(context, signal.SIGTERM, signal.SIGABRT):
                raise AssertionError
        except RuntimeWarning as warning:
            words = str(warning)
            assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        warnings.simplefilter("ignore", RuntimeWarning)
        async with forward_signals(context, signal.SIGTERM, signal.SIGABRT) as forwarded:
            assert signal.getsignal(signal.SIGABRT) is None
            os.kill(os.getpid(), signal.SIGTERM)
            await context.wait()
    print(forwarded, words)
run(main)
"""
    assert run_driver(program, loop) == (
        "<ForwardedSignals: SIGTERM> SIGABRT cannot be forwarded to context 'job': handled by C code, which Python "
        "could not put back\n"
    )


SPAWNS = """
async def main():
    args = dict.fromkeys(range(200), ("-c", f"echo >> {sys.argv[2]}; exec sleep 60"))
    context = SubprocessContext("job", "sh", args, None, DefaultLogsSpecs(log_dir=os.devnull))
    async with forward_signals(context) as forwarded:
        starting = asyncio.ensure_future(context.start())
        while len(context.pids()) < 20:
            await asyncio.sleep(0)
        if sys.argv[3] == "close":
            asked = asyncio.ensure_future(context.close(timeout=20))
        else:
            os.kill(os.getpid(), int(sys.argv[3]))
            asked = asyncio.ensure_future(asyncio.sleep(0))
        while context.state is GroupState.STARTING and not context._closed:
            await asyncio.sleep(0)
        before = len(context.pids())
        await asyncio.wait([starting, asked])
        assert isinstance(starting.exception(), ContextStateError), starting
    # Only the rank whose start was under way at the request can have come after it.
    assert before <= len(context.pids()) <= before + 1 < 40, (before, len(context.pids()))
    await asyncio.sleep(0.1)
    assert Path(sys.argv[2]).read_text().count("\\n") <= len(context.pids())
    assert not any(Path(f"/proc/{pid}").exists() for pid in context.pids().values())
    print(forwarded)
run(main)
"""


@each_loop
@pytest.mark.parametrize("how", ["close", signal.SIGTERM, signal.SIGINT])
@pytest.mark.half
def test_no_rank_is_spawned_after_a_stop_request(loop: str, tmp_path: Path, how: str | signal.Signals) -> None:
    """Asked to stop among 200 starts, by a close or by a signal, a group starts no further rank, and all are gone.

    https://github.com/circus-tent/circus/issues/529
    """
    shown = run_driver(SPAWNS, loop, tmp_path / "spawns", how if isinstance(how, str) else how.value)

    assert shown == f"<ForwardedSignals: {how.name if isinstance(how, signal.Signals) else 'none'}>\n"
