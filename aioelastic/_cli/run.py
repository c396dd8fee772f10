"""``aioelastic run``: run a plan, and show it."""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Sequence

from aioelastic._agent.agent import LocalElasticAgent
from aioelastic._agent.run_result import RunResult
from aioelastic._agent.worker_spec import WorkerSpec
from aioelastic._cli.progress import Progress, follow
from aioelastic._cli.run_options import parse
from aioelastic._cli.run_plan import RunPlan, make_plan
from aioelastic._cli.screen import Screen
from aioelastic._cli.summary import exit_status, is_worth_telling, summary
from aioelastic._contexts.signal_forwarding import forward_signals
from aioelastic._errors.child_failed import ChildFailedError
from aioelastic._errors.error_files import ERROR_FILE_VARIABLE
from aioelastic._errors.exceptions import AioelasticError
from aioelastic._errors.recording import record
from aioelastic._logs.std import Std, to_map
from aioelastic._supervision.signal_handlers import Listening
from aioelastic._supervision.states import GroupState

_USAGE_ERROR = 2
"""What programs exit with that were called wrongly; `argparse` does."""


def main(words: Sequence[str]) -> int:
    """Run ``aioelastic run``.

    Args:
        words: What follows ``run`` on the command line.

    Returns:
        The exit status: 0, the root cause's code, or 128 and the number of the signal that it died of or that ended the
        run; 1 if the ranks could not be started, 2 if the options cannot be used.
    """
    options = parse(words, os.environ)
    try:
        plan = make_plan(options, os.environ, on_terminal=_on_terminal())
        agent = LocalElasticAgent(plan.spec)
    except AioelasticError as error:
        with contextlib.suppress(OSError):
            # Not write(): there may be no stderr.
            print(f"aioelastic run: error: {error}", file=sys.stderr)  # noqa: T201 - see above
        return _USAGE_ERROR
    return asyncio.run(_run(agent, plan))


def _on_terminal() -> bool:
    # None is what a program has that was started with a closed descriptor.
    return all(stream is not None and stream.isatty() for stream in (sys.stdout, sys.stderr))


async def _run(agent: LocalElasticAgent, plan: RunPlan) -> int:
    begin = asyncio.get_running_loop().time()
    screen = Screen(colour=plan.colour, status=_leave_terminal(plan.spec))
    try:
        for note in plan.notes:
            screen.say(f"aioelastic: {note}")
        try:
            return await _show(agent, plan, screen)
        except AioelasticError as error:
            # It follows what it ended: the failures before are what somebody has to look into.
            status = _tell(_broken_off(agent, begin), (), screen) if agent.attempts else 1
            screen.say(f"aioelastic: error: {error}")
            return status
    finally:
        await screen.close()


async def _show(agent: LocalElasticAgent, plan: RunPlan, screen: Screen) -> int:
    loop = asyncio.get_running_loop()
    progress = Progress(plan.spec.local_world_size, plan.spec.max_restarts)
    following = asyncio.create_task(follow(screen, agent.events(), progress), name="aioelastic: progress")

    def note(number: int) -> bool:
        # It is called between any two instructions of this thread: what says so is left to the loop.
        loop.call_soon_threadsafe(lambda: screen.say(progress.signalled(number)))
        return True

    listening = Listening(plan.signals, note)
    try:
        async with forward_signals(agent, *plan.signals) as forwarded:
            result = await agent.run()
    finally:
        listening.close()
        # The events have ended with the run, whichever end it was.
        await following
    return _tell(result, forwarded.received, screen)


def _tell(result: RunResult, received: Sequence[int], screen: Screen) -> int:
    if is_worth_telling(result, terminal=screen.terminal):
        screen.say(summary(result, colour=screen.colour))
    _pass_on(result)
    return exit_status(result, received)


def _pass_on(result: RunResult) -> None:
    """Tell whoever supervises this launcher, as a rank of its own, what has failed; torchrun does, too."""
    if os.environ.get(ERROR_FILE_VARIABLE):
        with contextlib.suppress(ChildFailedError):
            record(result.raise_for_failures)()


def _broken_off(agent: LocalElasticAgent, begin: float) -> RunResult:
    """Give what there is of a run that began at a time of the event loop, and that an error has just ended."""
    last = agent.attempts[-1]
    return RunResult(
        GroupState.FAILED,
        failures=last.failures,
        attempts=agent.attempts,
        name=agent.name,
        start_time=agent.attempts[0].start_time,
        end_time=time.time(),
        duration=asyncio.get_running_loop().time() - begin,
    )


def _leave_terminal(spec: WorkerSpec) -> bool:
    """Tell whether no rank writes to the terminal by itself."""
    specs, ranks = spec.logs_specs, spec.local_world_size
    if specs is None:
        return False
    tee, redirects = to_map(specs.tee, ranks), to_map(specs.redirects, ranks)
    shown = specs.local_ranks_filter
    return all(tee[rank] | redirects[rank] == Std.ALL for rank in range(ranks) if shown is None or rank in shown)
