"""Finding the processes that belong to ranks, among all of the machine."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from aioelastic._child.token import TOKEN_VARIABLE
from aioelastic._processes.members import find_members, signal_member, tokens_of
from aioelastic._processes.tokens import group_and_rank, new_group_token, token_of_rank, token_variable
from tests.helpers.programs import PYTHON
from tests.helpers.supervisors import wait_until

GROUP = new_group_token()


@contextmanager
def bearing(tokens: str, *command: str) -> "Iterator[subprocess.Popen[bytes]]":
    """Run a program in a session of its own that bears tokens, once it has printed a line."""
    env = {**os.environ, TOKEN_VARIABLE: tokens}
    with subprocess.Popen(
        command or ("sh", "-c", "echo; exec sleep 60"), env=env, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        try:
            yield process
        finally:
            process.kill()


def found(*groups: str) -> dict[int, str]:
    """Look for the members of groups without ranks: pid -> token."""
    return {member.pid: member.token for member in find_members(psutil.pids, {}, groups)}


def test_a_token_is_found_wherever_it_stands_among_others() -> None:
    """Of a rank that is a supervisor itself, the ranks bear its token and their own."""
    for tokens in (f"{GROUP}.3", f"outer.0,{GROUP}.3", f"{GROUP}.3,inner.12"):
        with bearing(tokens) as process:
            assert found(GROUP) == {process.pid: f"{GROUP}.3"}
            assert found("another") == {}


def test_a_zombie_is_no_member() -> None:
    """It has no memory, so no environment, and nothing to be ended."""
    with bearing(f"{GROUP}.0", "sh", "-c", "echo; exit") as process:
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        with pytest.raises(ProcessLookupError):
            tokens_of(process.pid)
        assert found(GROUP) == {}


def test_a_process_whose_main_thread_has_ended_is_found() -> None:
    """The kernel shows no environment for it, but for its other threads."""
    program = (
        "import ctypes, threading, time\n"
        "threading.Thread(target=time.sleep, args=(60,)).start()\nprint(flush=True)\nctypes.CDLL(None).pthread_exit(0)"
    )
    with bearing(f"{GROUP}.0", PYTHON, "-c", program) as process:
        wait_until(lambda: psutil.Process(process.pid).status() == psutil.STATUS_ZOMBIE)
        assert found(GROUP) == {process.pid: f"{GROUP}.0"}


def test_a_process_that_keeps_forking_is_found() -> None:
    """One that is replaced by its own copy all the time is seen in one look or the next."""
    program = "import os, time\nprint(flush=True)\nwhile True:\n    if os.fork(): os._exit(0)\n    time.sleep(0.05)"
    with bearing(f"{GROUP}.0", PYTHON, "-c", program) as process:
        process.wait()
        try:
            for _ in range(20):
                assert found(GROUP)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_process_without_variables_is_nobodys() -> None:
    """It can be between two programs, so it is looked at again, and then it is left alone."""
    with subprocess.Popen(
        ("env", "-i", sys.executable, "-I", "-S", "-c", "print(flush=True); input()"),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as process:
        assert process.stdout is not None
        process.stdout.readline()
        with pytest.raises(ProcessLookupError):
            tokens_of(process.pid)
        assert found(GROUP) == {}
        process.kill()


def test_a_member_is_known_again_by_its_beginning() -> None:
    """When it began is asked again behind the handle, right before the signal."""
    with bearing(f"{GROUP}.0") as process:
        (member,) = find_members(psutil.pids, {}, [GROUP])
        signal_member(member._replace(began=member.began + 1), signal.SIGKILL)
        assert process.poll() is None
        signal_member(member, signal.SIGTERM)
        assert process.wait(20) == -signal.SIGTERM


def test_a_member_is_signalled_while_it_executes_another_program(tmp_path: Path) -> None:
    """Without variables for a moment, it is the one that was found all the same, and would not be signalled again."""
    script = tmp_path / "again"
    script.write_text('[ "$1" ] || echo; exec sh "$0" again')
    for _ in range(20):
        with bearing(f"{GROUP}.0", "sh", str(script)) as process:
            (member,) = find_members(psutil.pids, {}, [GROUP])
            signal_member(member, signal.SIGTERM)
            assert process.wait(5) == -signal.SIGTERM


def test_tokens_are_put_together_and_taken_apart() -> None:
    """A rank's token names group and rank, and is added to those that the supervisor bears."""
    token = token_of_rank(GROUP, 12)
    assert group_and_rank(token) == (GROUP, 12)
    assert token_variable(token, {}) == {TOKEN_VARIABLE: token}
    assert token_variable(token, {TOKEN_VARIABLE: "outer.1"}) == {TOKEN_VARIABLE: f"outer.1,{token}"}
    assert len(new_group_token()) == 16
