"""The supervisor of rounds: a program that runs one round after the other as it is told.

It reads an order per line from stdin, as JSON, writes what it has seen to the round's directory, and answers by a byte.
Everything is judged by those who gave the order, so it makes no difference to them when this program dies.
"""

import asyncio
import contextlib
import faulthandler
import gc
import io
import json
import os
import signal
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Collection, Iterator, Sequence
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from aioelastic import start_processes
from soaking.consoles import consoles
from soaking.dice import plan_round
from soaking.groups import Caller
from soaking.loops import loop_factories
from soaking.notices import Notices
from soaking.plans import DeathPlan, RoundPlan
from soaking.stock import Stock, children


def drive(control: int) -> None:
    """Run rounds until stdin ends: for each an order, a byte when all is ready for it, a line, a byte at its end."""
    os.set_inheritable(control, False)
    for factory in loop_factories().values():
        factory().close()  # libuv opens a pipe for signals that stays
    ready: set[str] = set()
    for line in sys.stdin:
        order = json.loads(line)
        plan = plan_round(order["seed"], order["number"], guard=order["guard"], loops=tuple(loop_factories()))
        warm_up({group.method for group in plan.groups} - ready)
        ready |= {group.method for group in plan.groups}
        os.write(control, b".")
        sys.stdin.readline()
        directory = Path(order["directory"])
        seen = run_round(plan, order, directory)
        answer = directory / "seen.json"
        answer.with_suffix(".part").write_text(json.dumps(seen))
        answer.with_suffix(".part").rename(answer)
        if seen["hangs"]:
            os._exit(3)
        os.write(control, b".")


def warm_up(methods: Collection[str]) -> None:
    """Start what some start methods have running until the program ends."""
    if "forkserver" in methods:

        async def one_group() -> None:
            async with start_processes("warm", os.getpid, {0: ()}, start_method="forkserver") as context:
                await context.wait()

        asyncio.run(one_group())
    if "spawn" in methods:
        resource_tracker.ensure_running()


def run_round(plan: RoundPlan, order: dict[str, Any], directory: Path) -> dict[str, Any]:
    """Run one round and tell what was seen."""
    seen: dict[str, Any] = {"groups": [], "hangs": [], "leaks": [], "errors": []}
    tempfile.tempdir = str(directory)
    notices = Notices()
    before = Stock.take()
    with (directory / "stacks").open("w") as stacks, notices.listening():
        faulthandler.dump_traceback_later(1.5 * order["patience"], file=stacks)
        try:
            with consoles(plan.consoles, directory), _dying(plan.death):
                _run_groups(plan, directory, order, seen, notices)
                _plant(order["plant"], notices)
        except Exception:  # noqa: BLE001 - whatever it is, it is a finding
            seen["errors"].append(traceback.format_exc())
        faulthandler.cancel_dump_traceback_later()
        stacks.close()
        gc.collect()
        if not seen["hangs"]:
            seen["leaks"] += _settled(before, order["patience"] / 5)
    tempfile.tempdir = None
    seen["notices"] = notices.said
    return seen


def _run_groups(
    plan: RoundPlan, directory: Path, order: dict[str, Any], seen: dict[str, Any], notices: Notices
) -> None:
    mark = f"{order['seed']}/{order['number']}"
    callers = [Caller(each, directory, mark, order["patience"]) for each in plan.groups]
    seen["groups"] = [each.seen for each in callers]
    with contextlib.ExitStack() as left:
        runner = asyncio.Runner(loop_factory=loop_factories()[plan.loop])
        left.callback(lambda: None if seen["hangs"] else runner.close())
        runner.get_loop().set_exception_handler(notices.take_context)
        runner.run(_all_groups(callers, seen, order["patience"], plan.guard_dies))


async def _all_groups(callers: list[Caller], seen: dict[str, Any], patience: float, guard_dies: float) -> None:
    if guard_dies:
        asyncio.get_running_loop().call_later(guard_dies, _kill_guard, seen)
    tasks = [asyncio.create_task(each.run()) for each in callers]
    _, hanging = await asyncio.wait(tasks, timeout=patience)
    if hanging:
        seen["hangs"].append(_all_stacks())
        return
    deadline = time.monotonic() + patience / 5
    while len(asyncio.all_tasks()) > 1 and time.monotonic() < deadline:  # noqa: ASYNC110 - nobody tells of their end
        await asyncio.sleep(0.005)
    seen["leaks"] += [f"task {task!r}" for task in asyncio.all_tasks() if task is not asyncio.current_task()]


def _kill_guard(seen: dict[str, Any]) -> None:
    """Kill the helper by which the library sees to orphans, if there is one."""
    for pid in children(os.getpid()):
        with contextlib.suppress(OSError):
            handle = os.pidfd_open(pid)
            try:
                if b"program.main(" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    signal.pidfd_send_signal(handle, signal.SIGKILL)
                    seen["guard killed"] = True
            finally:
                os.close(handle)


def _all_stacks() -> str:
    text = io.StringIO()
    for task in asyncio.all_tasks():
        task.print_stack(file=text)
    for thread in threading.enumerate():
        frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 - there is no public word for it
        text.write(f"thread {thread.name}\n{''.join(traceback.format_stack(frame)) if frame else ''}")
    return text.getvalue()


def _settled(before: Stock, patience: float) -> list[str]:
    """Give what is still there after what is on its way out has had a moment."""
    deadline = time.monotonic() + patience
    while (leaks := before.leaks()) and time.monotonic() < deadline:
        time.sleep(0.005)
    return leaks


@contextlib.contextmanager
def _dying(death: DeathPlan | None) -> Iterator[None]:
    """Let this program die after a while, unless it leaves the block before."""
    if death is None:
        yield
        return
    timer = threading.Timer(death.delay, _die, [death.kind])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def _die(kind: str) -> None:
    if kind == "exit":
        os._exit(1)
    os.kill(os.getpid(), signal.SIGKILL if kind == "kill" else signal.SIGSEGV)


_planted: list[object] = []


def _plant(faults: Sequence[str], notices: Notices) -> None:
    """Do what the library must not do, to see that it is noticed."""
    if "descriptor" in faults:
        _planted.append(os.dup(0))
    if "thread" in faults:
        threading.Thread(target=time.sleep, args=(5,), daemon=True, name="planted").start()
    if "process" in faults:
        _planted.append(os.posix_spawn("/bin/sleep", ["sleep", "20"], {}))
    if "stray" in faults and os.fork() == 0:
        os.setsid()
        if os.fork() == 0:
            os.execv("/bin/sleep", ["sleep", "21"])
        os._exit(0)
    if "notice" in faults:
        notices.said.append(("log of aioelastic", "planted"))
    if "hang" in faults:
        time.sleep(600)
