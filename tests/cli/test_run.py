"""``aioelastic run`` on pipes: what comes out of it, and what it leaves to whom called it."""

import json
import os
import re
import signal
import subprocess
import tempfile
from pathlib import Path

from tests.helpers.command_lines import SHELLS, begun, run, run_command, surroundings
from tests.helpers.drivers import ROOT

PLAIN = ("--no-python", "sh", "-c")
"""One rank, a script of a shell."""

INTERRUPTS = """\
import os, signal, sys
class Finder:
    def find_spec(name, *_):
        if name == "aioelastic._agent":
            os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Finder)
"""
"""Is imported by each Python, and has it interrupted in the middle of importing us."""


def test_a_rank_on_pipes_is_as_if_it_were_run_without_us() -> None:
    """What a rank writes comes out byte by byte, nothing of ours beside it, and what is on stdin is left for others."""
    script = r"""printf 'a\tb\377\033[31m\r10%%\n'; printf '<%s>' "$@"; cat; printf 'no end' >&2"""
    arguments = ("a b", "x\ny", "ü€", "", "--", "--tee", "3", "$HOME", "%s", "${rank}")
    with tempfile.TemporaryFile() as typed:
        typed.write(b"typed")
        typed.seek(0)
        done = run(*PLAIN, script, "sh", *arguments, stdin=typed, text=False)

        assert os.lseek(typed.fileno(), 0, os.SEEK_CUR) == 0
    assert done.stdout == b"a\tb\xff\x1b[31m\r10%\n" + "".join(f"<{each}>" for each in arguments).encode()
    assert (done.returncode, done.stderr) == (0, b"no end")


def test_output_goes_where_the_options_say(tmp_path: Path) -> None:
    """Each rank's streams go to files, through us, or neither, by the options; the report is on stderr.

    And the status is the root cause's exit code.
    """
    script = """
        echo "err $RANK" >&2; echo "out $RANK"; echo "loss $RANK"
        [ $RANK = 2 ] || exit 0
        cd logs/job/attempt_0
        until grep -q loss 0/stdout.log && grep -q 'loss 1' filtered_stdout.log; do sleep 0.01; done
        exit 7"""
    streams = ("-r", "0:1,1:2", "-t1:1,2:3", "--local-ranks-filter=0,2", "--duplicate-stdout-filters", "loss,epoch")
    place = ("--log-dir=logs", "--rdzv-id=job")

    done = run("--no-python", "--nproc_per_node=3", *place, *streams, "sh", "-c", script, cwd=tmp_path)

    logs = tmp_path / "logs/job/attempt_0"
    assert done.returncode == 7
    assert done.stdout == "[default2]:out 2\n[default2]:loss 2\n"
    lines, _, report = done.stderr.partition("default failed on ")
    assert sorted(lines.splitlines()) == ["[default2]:err 2", "err 0"]
    assert "Root cause: rank 2 " in report
    assert "exit code : 7" in report
    assert f"stderr of rank 2: {Path('logs/job/attempt_0/2/stderr.log')}" in report.replace(f"{tmp_path}/", "")
    files = {str(path.relative_to(logs)): path.read_text() for path in logs.glob("**/*.log")}
    assert sorted(files.pop("filtered_stdout.log").splitlines()) == ["[default1]:loss 1", "[default2]:loss 2"]
    assert {name: text for name, text in files.items() if text} == {
        "0/stdout.log": "out 0\nloss 0\n",
        "1/stderr.log": "err 1\n",
        "1/stdout.log": "out 1\nloss 1\n",
        "2/stderr.log": "err 2\n",
        "2/stdout.log": "out 2\nloss 2\n",
    }
    events = [json.loads(line) for line in (logs.parent / "events.jsonl").read_text().splitlines()]
    [failed] = [each for each in events if each["kind"] == "group failed"]
    assert (failed["rank"], failed["exitcode"]) == (2, 7)


def test_a_launcher_that_is_a_rank_passes_the_root_cause_on(tmp_path: Path) -> None:
    """Whoever runs it as a rank finds in its error file why the inner rank failed, recorded or by its last words."""
    script = tmp_path / "train.py"
    script.write_text("from aioelastic import record\n@record\ndef main():\n    1 / 0\nmain()\n")
    plain = ("--tee", 2, *PLAIN, "echo no device >&2; exit 3")

    for name, code, words, inner in (("one", 1, "ZeroDivisionError: ", [script]), ("two", 3, "no device", plain)):
        done = run("--no-python", f"--log-dir={tmp_path}", f"--rdzv-id={name}", *run_command(*inner))

        message = json.loads((tmp_path / name / "attempt_0/0/error.json").read_text())["message"]["message"]
        assert words in message
        assert done.returncode == code


def test_two_nodes_make_one_world() -> None:
    """Two launchers that are told their places give each global rank once, and all of them the same world."""
    script = "echo $RANK:$LOCAL_RANK:$GROUP_RANK:$WORLD_SIZE:$MASTER_ADDR:$MASTER_PORT"
    place = ("--nnodes", 2, "--master-addr", "127.0.0.1", "--master-port", 29411)
    with (
        begun(*SHELLS, *place, "--node-rank", 0, "sh", "-c", script) as first,
        begun(*SHELLS, *place, "--node-rank", 1, "sh", "-c", script) as second,
    ):
        outputs = [node.process.communicate(timeout=20) for node in (first, second)]

    assert [first.process.returncode, second.process.returncode] == [0, 0], outputs
    told = [sorted(stdout.decode().split()) for stdout, _ in outputs]
    world = "4:127.0.0.1:29411"
    assert told == [[f"0:0:0:{world}", f"1:1:0:{world}"], [f"2:0:1:{world}", f"3:1:1:{world}"]]


def test_a_program_that_is_not_there_is_told_in_one_line() -> None:
    """A rank that cannot start ends the command with 1 and a line that names the program; nothing else is left to say.

    A note comes before it, as for every run whose ranks share the CPUs unasked.
    """
    env = surroundings()
    del env["OMP_NUM_THREADS"]

    done = run(*SHELLS, "no-such-program", "-x", env=env)

    note, error = done.stderr.splitlines()
    assert re.fullmatch("aioelastic: OMP_NUM_THREADS is not set, .*", note)
    assert re.fullmatch(r"aioelastic: error: rank 0 could not start: .*'no-such-program'.*", error)
    assert (done.returncode, done.stdout) == (1, "")


def test_a_mistake_is_told_in_one_line_wherever_it_is_made() -> None:
    """In a directory that is gone, without a stdout, an impossible wish is still a line on stderr and status 2."""
    command = ["sh", "-c", 'mkdir here; cd here; rmdir ../here; exec "$@" >&-', "sh", *run_command("train.py")]

    done = subprocess.run(command, env=surroundings(), capture_output=True, text=True, check=False, timeout=60)

    assert re.fullmatch(r"aioelastic run: error: there is no script 'train\.py' .*\n", done.stderr)
    assert (done.returncode, done.stdout) == (2, "")


def test_nothing_outlives_a_killed_launcher() -> None:
    """After SIGKILL no rank and no child of one is left, not even in a session of its own."""
    with begun(*SHELLS, "--tee", 1, "sh", "-c", "setsid sleep 98 & sleep 97 & echo ready; wait") as launcher:
        assert [launcher.line()[-6:], launcher.line()[-6:]] == [":ready"] * 2
        assert len(launcher.survivors) >= 6
        launcher.kill()
        assert launcher.until_gone() < 3


def test_an_early_interrupt_is_no_mistake_of_ours(tmp_path: Path) -> None:
    """Whoever presses ^C before anything has begun is not shown what is being imported."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTS)

    done = run(*PLAIN, "true", env=surroundings(PYTHONPATH=f"{tmp_path}:{ROOT}"))

    assert (done.returncode, done.stdout, done.stderr) == (-signal.SIGINT, "", "")


def test_what_the_ranks_would_refuse_is_a_usage_error() -> None:
    """What only shows when options and variables are put together is one line as well, and nothing starts."""
    env = surroundings(CUDA_VISIBLE_DEVICES=0)

    done = run("--virtual-local-rank", "--nproc-per-node", 2, "--no-python", "echo", "started", env=env)

    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch("aioelastic run: error: rank 1 is to see one device of its own, .*\n", done.stderr)
