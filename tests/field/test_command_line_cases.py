"""Cases from the field at the command line: a test is named after what must hold there, and links the report."""

import re
import signal
import time
from pathlib import Path

import pytest

from tests.helpers.command_lines import SHELLS, Terminal, begun, run, run_command, surroundings
from tests.helpers.supervisors import wait_until

SAVES = """\
trap 'echo asked > asked; while ! [ -e go ]; do sleep 0.01; done; echo saved > saved; exit 0' TERM
echo ready
while :; do sleep 0.02; done
"""
"""Takes as long to leave as it takes for a file ``go`` to come."""


def test_a_grace_that_is_long_enough_lets_a_rank_save(tmp_path: Path) -> None:
    """A rank that needs a while after TERM has it, when ``--shutdown-timeout`` gives it that; the status is TERM's.

    https://github.com/pytorch/pytorch/issues/119856, https://github.com/pytorch/pytorch/issues/68258
    """
    with begun("--shutdown-timeout", 60, "--no-python", "sh", "-c", SAVES, cwd=tmp_path) as launcher:
        assert launcher.line() == "ready"
        launcher.process.send_signal(signal.SIGTERM)
        wait_until((tmp_path / "asked").exists, "TERM")
        (tmp_path / "go").touch()
        _, stderr = launcher.process.communicate(timeout=20)

    assert launcher.process.returncode == 143
    assert (tmp_path / "saved").exists()
    assert b"had to be killed" not in stderr


def test_a_grace_that_is_short_ends_a_rank_that_takes_longer(tmp_path: Path) -> None:
    """A rank that is not done in time is killed, and that is said; torchrun's variable gives the time, too.

    https://github.com/pytorch/pytorch/issues/119856, https://github.com/pytorch/pytorch/issues/68258
    """
    env = surroundings(TORCH_ELASTIC_SHUTDOWN_TIMEOUT="0.2")
    with begun("--no-python", "sh", "-c", SAVES, cwd=tmp_path, env=env) as launcher:
        assert launcher.line() == "ready"
        launcher.process.send_signal(signal.SIGTERM)
        began = time.monotonic()
        _, stderr = launcher.process.communicate(timeout=20)

    assert time.monotonic() - began < 5
    assert launcher.process.returncode == 143
    assert (tmp_path / "asked").exists()
    assert not (tmp_path / "saved").exists()
    assert "aioelastic: rank 0 had to be killed\n" in stderr.decode()


STUBBORN = """\
trap '' TERM HUP QUIT
trap 'echo INT >> heard.$RANK' INT
echo "rank $RANK is ready"
while :; do sleep 0.02; done
"""
"""Ignores whatever it can, and notes each ^C."""


def test_a_second_interrupt_hurries_the_stop(tmp_path: Path) -> None:
    """Of two ^C typed at a terminal the first reaches each rank once, and the second one ends all, despite the grace.

    https://github.com/circus-tent/circus/issues/167
    """

    def heard() -> list[str]:
        return [path.read_text() for path in tmp_path.glob("heard.*")]

    env = surroundings(TMPDIR=tmp_path)
    with Terminal(run_command(*SHELLS, "sh", "-c", STUBBORN), env, cwd=tmp_path) as console:
        console.until("rank 0 is ready", "rank 1 is ready")
        console.type(b"\x03")
        console.until("press Ctrl-C again to kill them")
        wait_until(lambda: heard() == ["INT\n"] * 2, "^C in both ranks")
        began = time.monotonic()
        console.type(b"\x03")
        assert console.status() == 130
        assert time.monotonic() - began < 2
        rows = console.rows

    assert heard() == ["INT\n"] * 2
    assert "aioelastic: SIGINT again: the ranks are being killed" in rows
    assert "aioelastic: ranks 0-1 had to be killed" in rows


def test_ranks_that_were_stopped_are_no_causes(tmp_path: Path) -> None:
    """Of four ranks one fails: the report has one root cause, and the three others as stopped because of it.

    https://github.com/pytorch/pytorch/issues/160908, https://github.com/pytorch/pytorch/issues/88251
    """
    script = "touch up.$RANK; until [ $(ls up.* | wc -l) = 4 ]; do sleep 0.01; done; [ $RANK = 2 ] && exit 5; "

    done = run("--no-python", "--nproc-per-node", 4, "sh", "-c", f"{script} exec sleep 60", cwd=tmp_path)

    assert done.returncode == 5
    assert re.findall(r"(?m)^(.*): rank (\d+) \(pid", done.stderr) == [("Root cause", "2")]
    assert "1 rank failed, first rank 2\n" in done.stderr
    assert "Stopped because of that: 3 ranks (0-1, 3)\n" in done.stderr


def test_workers_that_cannot_boot_are_not_run_for_ever(tmp_path: Path) -> None:
    """A module that cannot be imported is tried as often as asked for, with growing delays, and all that is told.

    https://github.com/benoitc/gunicorn/issues/2504, https://github.com/Unitech/pm2/issues/705
    """
    (tmp_path / "worker.py").write_text("import no_such_library\n")

    done = run("--max-restarts", 3, "--redirects", 2, "-m", "worker", cwd=tmp_path, env=surroundings(TMPDIR=tmp_path))

    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'no_such_library'\n" in done.stderr
    delays = [float(each) for each in re.findall(r"failed \(rank 0: exit code 1\); .* begins in (\S+) s", done.stderr)]
    assert len(delays) == 3
    assert delays == sorted(delays)
    assert re.findall(r"(?m)^  attempt (\d).* rank 0 failed \(exit code 1\) after", done.stderr) == list("0123")


@pytest.mark.one_of("option")
@pytest.mark.parametrize("option", ["--redirects", "--tee"])
def test_the_cause_is_shown_of_a_script_that_records_nothing(tmp_path: Path, option: str) -> None:
    """A plain script raises: the last lines of its stderr, which is redirected or teed, are in the summary.

    https://github.com/pytorch/pytorch/issues/113546, https://github.com/huggingface/accelerate/issues/4277
    """
    script = tmp_path / "train.py"
    script.write_text("def train():\n    raise ValueError('bad batch')\n\ntrain()\n")

    done = run(option, 3, script, env=surroundings(TMPDIR=tmp_path))

    assert done.returncode == 1
    report = done.stderr.partition("Root cause: rank 0 ")[2]
    assert f'File "{script}", line 2, in train\n' in report
    assert re.search(r"(?m)^ *ValueError: bad batch$", report)
    assert ("[default0]:ValueError: bad batch\n" in done.stderr) == (option == "--tee")


def test_a_death_by_signal_has_the_status_that_a_shell_gives_it() -> None:
    """A rank that dies of SIGSEGV makes the command end with 139, and the report says SIGSEGV.

    https://github.com/pallets/werkzeug/issues/144
    """
    done = run(*SHELLS, "sh", "-c", "[ $RANK = 1 ] && kill -SEGV $$; exec sleep 60")

    assert done.returncode == 139
    assert "exit code : -11 (SIGSEGV)\n" in done.stderr
