"""Groups of commands and of functions, as a user's project starts and watches them.

The files of this folder are not run: mypy and pyright check them, both strictly, against the installed package.
"""

import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any, assert_type

import aioelastic
from aioelastic import (
    AffinityMode,
    ContextStateError,
    DefaultLogsSpecs,
    Event,
    EventKind,
    EventStream,
    ExitCause,
    ForwardedSignals,
    GroupState,
    LineStream,
    LogLine,
    LogsDest,
    LogsSpecs,
    MultiprocessContext,
    NumaOptions,
    PContext,
    ProcessFailure,
    RankExit,
    RunProcsResult,
    Std,
    SubprocessContext,
    SubprocessHandler,
    forward_signals,
    get_subprocess_handler,
    start_processes,
    to_map,
)


class OwnLogs(LogsSpecs):
    """Log specifications of the user's own."""

    def reify(self, envs: Mapping[int, Mapping[str, Any]]) -> LogsDest:
        """Send all of it to the console."""
        nowhere = dict.fromkeys(envs, "")
        return LogsDest(stdouts=nowhere, stderrs=nowhere, tee_stdouts=nowhere, tee_stderrs=nowhere)

    @property
    def root_log_dir(self) -> str | None:
        """There is none."""
        return None


def train(steps: int, rate: float = 0.1) -> float:
    """Do the work of a rank."""
    return steps * rate


async def every_argument() -> None:
    """Start a group by all the arguments there are, positional and by name."""
    context = await start_processes(
        "trainer",
        Path("/usr/bin/python3"),
        {0: ("train.py", 1, 2.5), 1: "train.py", 2: ["train.py"]},
        {0: {"LOCAL_RANK": 0, "RATE": 0.5, "HOME": Path("/tmp"), "GONE": None}, 1: {}, 2: os.environ},
        DefaultLogsSpecs("logs", redirects=Std.OUT | Std.ERR, tee={0: Std.ERR}, local_ranks_filter={0}),
        {0: "[first]:"},
        "spawn",
        NumaOptions(AffinityMode.NODE, should_fall_back_if_binding_fails=True),
        ["loss", re.compile("epoch [0-9]+")],
        (re.compile("error"),),
        cwd="/tmp",
        death_sig=signal.SIGINT,
        shutdown_timeout=5,
        drain_timeout=0.5,
        orphan_guard=True,
        sweep_descendants=False,
    )
    assert_type(context, PContext)
    await context.close(signal.SIGTERM, timeout=3)


async def results() -> None:
    """Look at all that a result tells."""
    async with start_processes("job", train, args={0: (1,), 1: (2, 0.3)}, log_dir=Path("logs"), tee=Std.ALL) as context:
        assert_type(context, PContext)
        assert_type(context.pids(), dict[int, int])
        assert_type(context.cpus, dict[int, frozenset[int]])
        assert_type(context.state, GroupState)
        assert_type((context.name, context.nprocs), tuple[str, int])
        assert_type(context.stdouts, dict[int, str])
        assert_type(await context.wait(timeout=0), RunProcsResult | None)
        result = await context.wait()

    assert_type(result.return_values, dict[int, Any])
    assert_type(result.failures, dict[int, ProcessFailure])
    assert_type(result.root_failure(), ProcessFailure | None)
    assert_type(result.exits, dict[int, RankExit])
    assert_type(result.survivors, dict[int, list[int]])
    result.raise_for_failures()
    for rank, end in result.exits.items():
        assert_type(rank, int)
        assert_type((end.pid, end.exitcode, end.signal), tuple[int, int | None, str | None])
        assert_type(end.cause, ExitCause)
        assert_type(end.cpu_time, float | None)


async def follow(context: PContext) -> None:
    """Follow what happens, and what the ranks print."""
    assert_type(context.events(), EventStream)
    async for event in context.events():
        assert_type(event, Event)
        if event.kind is EventKind.RANK_EXITED:
            assert_type(event.rank, int | None)
        assert_type(event.to_json(), dict[str, Any])
    assert_type(context.lines(0, Std.ERR, from_start=True), LineStream)
    assert_type(context.lines(last=20), LineStream)
    async for line in context.lines():
        assert_type(line, LogLine)
        assert_type((line.rank, line.stream, line.time, line.text), tuple[int, Std, float, str])


async def signals(context: PContext) -> None:
    """Hand signals on to a group."""
    async with forward_signals(context, signal.SIGTERM, signal.SIGINT) as forwarded:
        assert_type(forwarded, ForwardedSignals)
    assert_type(forwarded.received, tuple[signal.Signals, ...])


async def made_by_hand() -> None:
    """Make contexts with the seed's arguments, and start them later."""
    contexts: list[PContext] = [
        SubprocessContext("job", "true", {0: ()}, None, OwnLogs()),
        MultiprocessContext("job", train, {0: (1,)}, {0: {}}, "forkserver", DefaultLogsSpecs(os.devnull)),
    ]
    for context in contexts:
        try:
            await context.start()
        except ContextStateError as error:
            assert_type(error, ContextStateError)
        async with context as entered:
            assert_type(await entered.wait(1.5), RunProcsResult | None)


async def one_rank() -> int:
    """Start one rank without a group."""
    handler = await get_subprocess_handler("sleep", ("9",), {}, "out.log", None, 0, NumaOptions(AffinityMode.SOCKET))
    assert_type(handler, SubprocessHandler)
    handler.close(signal.SIGKILL)
    return assert_type(await handler.wait(), int)


def streams() -> None:
    """Say what is redirected and what is teed."""
    assert_type(Std.from_str("0:3,1:0"), Std | dict[int, Std])
    assert_type(to_map({0: Std.ALL}, 4), dict[int, Std])
    assert_type(to_map(Std.ERR, 4), dict[int, Std])
    assert_type(aioelastic.__version__, str)
