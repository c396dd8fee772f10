"""What becomes of the ranks when their supervisor ends in a way that nobody could prepare for."""

import os
import random
import signal
import time
from pathlib import Path

import pytest

# Imported so that it is compiled: the guard would take the memory for that.
import aioelastic._guard.aftermath  # noqa: F401
from tests.helpers.drivers import LOOPS
from tests.helpers.survivors import FAMILY, command_of, doomed
from tests.helpers.waiting import is_alive

GROUP = """
async def main():
    args = dict.fromkeys(range(2), ("-c", sys.argv[2]))
    context = await start_processes("job", "sh", args, log_dir=sys.argv[3], redirects=Std.ALL)
    while any("ready" not in Path(path).read_text() for path in context.stdouts.values()):
        await asyncio.sleep(0.01)
    print("up", flush=True)
    {end}
run(main)
"""
"""Runs two ranks until each has said that it is ready, then ends in some way."""

SLEEPS = "await asyncio.sleep(60)"

ENDS = {
    "killed": "os.kill(os.getpid(), signal.SIGKILL)",
    "crash": "os.kill(os.getpid(), signal.SIGSEGV)",
    "os._exit": "os._exit(0)",
    "another program": "os.execv('/bin/true', ['true'])",
}


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("end", ENDS)
@pytest.mark.half
def test_nothing_outlives_the_supervisor(end: str, loop: str, tmp_path: Path) -> None:
    """Ranks and children that ignore SIGTERM, and daemons in sessions of their own, are gone, and so is the guard."""
    with doomed(GROUP.format(end=ENDS[end]), FAMILY, tmp_path, loop=loop) as supervisor:
        assert supervisor.line() == "up"
        supervisor.process.wait(20)
        assert supervisor.until_gone() < 4


def test_it_needs_no_standard_streams(tmp_path: Path) -> None:
    """A supervisor that has closed them is guarded all the same, whatever gets their numbers then."""
    end = "os.write(8, b'up'); " + ENDS["killed"]
    closes = "os.dup2(1, 8)\nfor number in (0, 1, 2): os.close(number)\nasync def main():"
    program = GROUP.format(end=end).replace("async def main():", closes).replace('print("up", flush=True)', "")
    with doomed(program.replace("b'up'", "b'up\\n'"), FAMILY, tmp_path) as supervisor:
        assert supervisor.line() == "up"
        supervisor.process.wait(20)
        assert supervisor.until_gone() < 4


FUNCTIONS = """
from tests.helpers import function_worlds as worlds
async def main():
    calls = dict.fromkeys(range(2), (sys.argv[3],))
    context = await start_processes("job", worlds.leave_a_daemon, calls, start_method=sys.argv[2])
    while len(list(Path(sys.argv[3]).iterdir())) < 2:
        await asyncio.sleep(0.01)
    print("up", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
if __name__ == "__main__":
    run(main)
"""


@pytest.mark.one_method
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_forked_daemons_of_functions_do_not_either(method: str, tmp_path: Path) -> None:
    """A rank's copy that has left session and parents, and has executed nothing, is found by its token all the same."""
    with doomed(FUNCTIONS, method, tmp_path) as supervisor:
        assert supervisor.line() == "up"
        supervisor.process.wait(20)
        assert supervisor.until_gone() < 4


def test_polite_ranks_get_the_groups_own_signal_and_a_moment(tmp_path: Path) -> None:
    """They end by ``death_sig``, those that had stopped themselves too, and need no SIGKILL."""
    program = """
async def main():
    scripts = ["trap 'echo bye; exit' INT; echo ready; while :; do sleep 0.05; done", "trap 'echo bye; exit' INT; "
               "echo ready; kill -STOP $$; while :; do sleep 0.05; done"]
    context = await start_processes("job", "sh", {rank: ("-c", each) for rank, each in enumerate(scripts)},
                                    log_dir=sys.argv[2], redirects=Std.ALL, death_sig=signal.SIGINT)
    while any("ready" not in Path(path).read_text() for path in context.stdouts.values()):
        await asyncio.sleep(0.01)
    print(*context.stdouts.values(), sep="\\n", flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
run(main)
"""
    with doomed(program, tmp_path) as supervisor:
        logs = [Path(supervisor.line()) for _ in range(2)]
        assert supervisor.until_gone() < 2
    assert [log.read_text() for log in logs] == ["ready\nbye\n"] * 2


def test_the_groups_own_grace_counts_if_it_is_shorter(tmp_path: Path) -> None:
    """Deaf ranks of a group with a tenth of a second of grace are not given two."""
    program = GROUP.format(end=ENDS["killed"]).replace("redirects", "shutdown_timeout=0.1, redirects")
    with doomed(program, FAMILY, tmp_path) as supervisor:
        assert supervisor.line() == "up"
        supervisor.process.wait(20)
        assert supervisor.until_gone() < 1.5


STARTS = """
from tests.helpers import function_worlds as worlds
async def main():
    entrypoint, call = ("sleep", (60,)) if sys.argv[2] == "command" else (worlds.pause, ())
    await start_processes("warm", worlds.double, {0: (1,)}, start_method="forkserver")
    print("up", flush=True)
    await start_processes("job", entrypoint, dict.fromkeys(range(6), call),
                          start_method=sys.argv[2] if sys.argv[2] != "command" else "spawn")
    await asyncio.sleep(60)
if __name__ == "__main__":
    run(main)
"""


@pytest.mark.one_method
@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver", "command"])
def test_a_supervisor_may_die_while_it_starts_ranks(method: str) -> None:
    """Whatever had come into being at that moment is gone: also what had no session and no token yet."""
    moments = random.Random(method)
    for _ in range(3):
        with doomed(STARTS, method) as supervisor:
            assert supervisor.line() == "up"
            time.sleep(moments.random() * 0.08)
            supervisor.kill()
            assert supervisor.until_gone() < 4


def test_the_last_lines_are_in_the_files(tmp_path: Path) -> None:
    """What ranks wrote while the supervisor was busy, and what they say on SIGTERM, is behind what it had written."""
    program = """
console, sys.stdout = sys.stdout, open(os.devnull, "w")  # which nobody reads here
async def main():
    script = ("trap 'echo bye; exit' TERM; i=0; while [ $i -lt 2000 ]; do echo line $i; i=$((i+1)); done; "
              "touch $0.written; while :; do sleep 0.05; done")
    context = await start_processes("job", "sh", {rank: ("-c", script, f"{sys.argv[2]}/{rank}") for rank in range(3)},
                                    log_dir=f"{sys.argv[2]}/logs", tee={0: Std.ALL, 1: Std.OUT, 2: Std.OUT})
    print(*context.stdouts.values(), sep="\\n", flush=True, file=console)
    while not all(Path(f"{sys.argv[2]}/{rank}.written").exists() for rank in range(3)):
        time.sleep(0.01)  # the loop stands still: the lines stay in the pipes
    os.kill(os.getpid(), signal.SIGKILL)
run(main)
"""
    with doomed(program, tmp_path) as supervisor:
        logs = [Path(supervisor.line()) for _ in range(3)]
        supervisor.process.wait(20)
        supervisor.until_gone()
    expected = "".join(f"line {number}\n" for number in range(2000)) + "bye\n"
    assert [log.read_text() for log in logs] == [expected] * 3


def test_unrelated_children_are_left_alone(tmp_path: Path) -> None:
    """A hundred children of the supervisor's own, in its session and in others, and a stopped one, live on."""
    program = GROUP.format(end=ENDS["killed"]).replace(
        "async def main():",
        "import subprocess\nothers = [subprocess.Popen(['sleep', '60'], stdout=subprocess.DEVNULL, "
        "start_new_session=number % 2 == 0) for number in range(100)]\nothers[0].send_signal(signal.SIGSTOP)\n"
        "print(*(each.pid for each in others), flush=True)\nasync def main():",
    )
    with doomed(program, FAMILY, tmp_path) as supervisor:
        others = [int(word) for word in supervisor.line().split()]
        assert supervisor.line() == "up"
        supervisor.process.wait(20)
        supervisor.until_gone(but=others)
        assert len(others) == 100
        assert all(command_of(pid) == "sleep 60 " for pid in others)


@pytest.mark.parametrize("hold", ["os.fork()", "__import__('ctypes').CDLL(None).fork()"], ids=["Python", "C"])
@pytest.mark.half
def test_a_fork_of_the_supervisor_does_not_stand_for_it(hold: str, tmp_path: Path) -> None:
    """A copy of the supervisor that lives on, even with a copy of the guard's socket, keeps nothing alive."""
    fork = f"copy = {hold}\n    if not copy: __import__('signal').pause()\n    print(copy, flush=True)\n    "
    end = fork + ENDS["killed"]
    with doomed(GROUP.format(end=end), FAMILY, tmp_path) as supervisor:
        assert supervisor.line() == "up"
        copy = int(supervisor.line())
        supervisor.process.wait(20)
        supervisor.until_gone(but=[copy])


def test_a_group_without_a_guard_lives_on(tmp_path: Path) -> None:
    """``orphan_guard=False`` starts no guard, and nobody ends the ranks."""
    program = GROUP.format(end=ENDS["killed"]).replace("redirects", "orphan_guard=False, redirects")
    with doomed(program, "echo ready; exec sleep 60", tmp_path) as supervisor:
        assert supervisor.line() == "up"
        supervisor.process.wait(20)
        assert [command_of(pid) for pid in supervisor.survivors] == ["sleep 60 "] * 2


@pytest.mark.parametrize(
    ("daemon", "options"),
    [("env -u AIOELASTIC_RANK_TOKEN setsid", ""), ("setsid", "sweep_descendants=False, ")],
    ids=["by the variable", "by the group"],
)
def test_daemons_may_opt_out(daemon: str, options: str, tmp_path: Path) -> None:
    """What was started without the variable lives on, and with ``sweep_descendants=False`` what left the session."""
    script = (
        f'trap up=yes USR1; setsid sleep 62 & {daemon} sh -c "kill -USR1 $$; exec sleep 61" & '
        "while [ -z $up ]; do sleep 0.01; done; echo ready; exec sleep 63"
    )
    if options:
        script = script.replace("setsid sleep 62", "sleep 62", 1)
    with doomed(
        GROUP.format(end=ENDS["killed"]).replace("redirects", options + "redirects"), script, tmp_path
    ) as supervisor:
        assert supervisor.line() == "up"
        supervisor.process.wait(20)
        # A rank's own shell has both in its words until it executes the last one.
        left = {pid: command_of(pid) for pid in supervisor.survivors}
        daemons = [pid for pid, words in left.items() if "sleep 61" in words and "sleep 63" not in words]
        assert len(daemons) == 2
        supervisor.until_gone(but=daemons)


def test_a_terminals_signals_do_not_reach_the_guard(tmp_path: Path) -> None:
    """Ctrl-C for the whole foreground, a hang-up, and signals to the guard itself end nobody but the supervisor."""
    with doomed(GROUP.format(end=SLEEPS), FAMILY, tmp_path) as supervisor:
        assert supervisor.line() == "up"
        (guard,) = supervisor.guards
        assert os.getsid(guard) == guard
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGPIPE, signal.SIGUSR1):
            os.kill(guard, number)
        assert is_alive(guard)
        supervisor.kill()
        assert supervisor.until_gone() < 4


def test_a_supervisor_that_is_a_rank_takes_its_ranks_along(tmp_path: Path) -> None:
    """Closing the outer group ends the inner supervisor, its guard, its ranks and their daemons."""
    inner = GROUP.format(end="print('ready', flush=True); await asyncio.sleep(60)")
    outer = """
from tests.helpers.drivers import driver_command
from tests.helpers.programs import PYTHON
async def main():
    program, *args = driver_command(sys.argv[2], "asyncio", sys.argv[3], sys.argv[4])
    async with start_processes("outer", program, {0: tuple(args)}, log_dir=sys.argv[4], redirects=Std.ALL) as context:
        while "ready" not in Path(context.stdouts[0]).read_text():
            await asyncio.sleep(0.01)
        print("up", flush=True)
        sys.stdin.readline()
        await context.close(timeout=0.5)
    print("closed", flush=True)
    await asyncio.sleep(60)
run(main)
"""
    with doomed(outer, inner, FAMILY, tmp_path) as supervisor:
        assert supervisor.line() == "up"
        assert len(supervisor.guards) == 2
        assert supervisor.line() == "closed"
        assert supervisor.family == [supervisor.process.pid]


def test_the_guard_is_small(tmp_path: Path) -> None:
    """It takes less than 12 MB, also when it has everything at hand that it will need."""
    with doomed(GROUP.format(end=SLEEPS), FAMILY, tmp_path) as supervisor:
        assert supervisor.line() == "up"
        (guard,) = supervisor.guards
        time.sleep(1.5)  # it gives no sign of being prepared
        status = Path(f"/proc/{guard}/status").read_text()
        (resident,) = [int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")]
        assert resident < 12 * 1024
