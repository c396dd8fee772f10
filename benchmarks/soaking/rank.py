"""A rank: does what its plan says and notes in its journal what it has done; it loads as little as can be.

Run as ``python -S -E rank.py PLAN``, or called as a function with the same text.
"""

import marshal
import os
import signal
import sys
import time
from typing import Any

if __name__ == "__main__":
    sys.path[:0] = [__file__.rpartition("/soaking/")[0]]

from soaking.journal import ENDING, READY, Journal, start_time
from soaking.output import record, value_of

LIFE = 60
"""Seconds after which everything that a round has started ends in any case."""


def play(words: str) -> object:
    """Do what the plan says."""
    plan = marshal.loads(bytes.fromhex(words))
    journal = Journal(plan["journal"])
    signal.alarm(LIFE)
    if plan["deaf"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for kin in plan["kin"]:
        _leave_behind(kin, plan["nursery"])
    journal.enter(READY)
    middle = max(plan["records"]) // 2
    _talk(plan, journal, 0, middle)
    if plan["stops"]:
        os.kill(os.getpid(), signal.SIGSTOP)
    _talk(plan, journal, middle, max(plan["records"]))
    time.sleep(plan["pause"])
    return _end(plan, journal)


def _talk(plan: dict[str, Any], journal: Journal, first: int, last: int) -> None:
    for number in range(first, last):
        if number == plan["closes_at"]:
            os.close(1)
        for stream, count in enumerate(plan["records"]):
            closed = stream == 0 and number >= plan["closes_at"]
            if number < count and not closed and stream not in plan.setdefault("refused", []):
                _write(plan, journal, stream, number)
        if plan["rest"] and number % 16 == 0:
            time.sleep(plan["rest"])


def _write(plan: dict[str, Any], journal: Journal, stream: int, number: int) -> None:
    data = memoryview(record(plan["seed"], stream, number))
    journal.begin(stream, number)
    try:
        while data:
            data = data[os.write(1 + stream, data) :]
    except OSError:
        journal.give_up(stream)
        plan["refused"].append(stream)
        return
    journal.finish(stream, number)


def _end(plan: dict[str, Any], journal: Journal) -> object:
    ending, number = plan["ending"], plan["number"]
    if ending == "linger":
        time.sleep(2 * LIFE)
    journal.enter(ENDING)
    if ending == "exit":
        sys.exit(number)
    if ending == "raise":
        raise ValueError(f"as planned: {plan['seed']}")
    if ending == "_exit":
        os._exit(number)
    if ending == "kill":
        os.kill(os.getpid(), number)
    return value_of(plan["seed"], number)


def _leave_behind(kin: dict[str, Any], nursery: str) -> None:
    """Fork a process that stays, and wait until it is what it is to be."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if kin["kind"] == "daemon":
                os.setsid()
                if os.fork():
                    os._exit(0)
            _live(kin, nursery, writing)
        finally:
            os._exit(70)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    if kin["kind"] == "daemon":
        os.waitpid(pid, 0)


def _live(kin: dict[str, Any], nursery: str, ready: int) -> None:
    signal.alarm(LIFE)
    if kin["kind"] == "session":
        os.setsid()
    elif kin["kind"] == "group":
        os.setpgid(0, 0)
    if kin["deaf"]:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if not kin["holds"]:
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (1, 2):
            os.dup2(nothing, number)
    words = f"{kin['kind']}{' deaf' * kin['deaf']}{' holds' * kin['holds']}{' executes' * kin['executes']}"
    descriptor = os.open(f"{nursery}/{os.getpid()}", os.O_WRONLY | os.O_CREAT, 0o600)
    os.write(descriptor, f"{start_time(os.getpid())} {words}".encode())
    os.close(descriptor)
    os.write(ready, b".")
    os.close(ready)
    if kin["executes"]:
        os.execv("/bin/sleep", ["sleep", str(LIFE)])
    time.sleep(LIFE)


if __name__ == "__main__":
    own = marshal.loads(bytes.fromhex(sys.argv[1]))
    if own["ending"] == "raise":
        sys.path[:0] = [own["package"]]
        from aioelastic import record as recorded

        play = recorded(play)
    play(sys.argv[1])
