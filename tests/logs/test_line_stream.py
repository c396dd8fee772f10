"""Log lines as data, with real ranks."""

import asyncio
import contextlib
import os
import resource
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import FrozenInstanceError
from pathlib import Path
from typing import Any, Final

import pytest

from aioelastic import (
    ContextStateError,
    LineStream,
    LogLine,
    LogsDest,
    PContext,
    RanksError,
    SpecificationError,
    SpecificationTypeError,
    Std,
    start_processes,
)
from aioelastic._base.defaults import CHUNK_BYTES, LINE_LIMIT
from tests.helpers.function_groups import FORK_WARNING
from tests.helpers.function_worlds import print_both
from tests.helpers.groups import WAITS_FOR, shell_group
from tests.helpers.log_specs import Own
from tests.helpers.programs import SLEEP, shells
from tests.helpers.waiting import until, until_written

WAYS: Final[dict[str, dict[str, Any]]] = {
    "redirected": {"redirects": Std.ALL},
    "teed": {"redirects": Std.NONE, "tee": Std.ALL},
    "filtered": {"redirects": Std.NONE, "tee": Std.ALL, "duplicate_stdout_filters": ["b"]},
}
"""The ways in which bytes come into a rank's file: the rank writes them itself, or a pump does."""

each_way = pytest.mark.parametrize("way", WAYS)

TALKS = WAITS_FOR.format(sign="go") + "; echo a; echo b >&2; echo c; printf '%s' d"
"""Writes to both streams on a sign, the last line without an end."""


def by_place(lines: list[LogLine]) -> dict[tuple[int, Std], list[str]]:
    """Give the texts of each rank's streams."""
    found: dict[tuple[int, Std], list[str]] = defaultdict(list)
    for line in lines:
        found[line.rank, line.stream].append(line.text)
    return dict(found)


async def rest(stream: LineStream) -> list[LogLine]:
    """Give what is left of a stream."""
    return [line async for line in stream]


async def texts(stream: LineStream) -> list[str]:
    """Give the texts of what is left of a stream."""
    return [line.text async for line in stream]


@each_way
async def test_all_lines_of_a_group_are_given_once_and_in_order(way: str, tmp_path: Path) -> None:
    """Readers from now on and from the start, of all or of one stream, get the same lines, and end with the group."""
    expected = {(rank, std): [*"acd"] if std is Std.OUT else ["b"] for rank in (0, 1) for std in (Std.OUT, Std.ERR)}
    async with shell_group(tmp_path, TALKS, TALKS, **WAYS[way]) as context:
        now, early = context.lines(), context.lines(from_start=True)
        one = context.lines(1, Std.OUT)
        readers = [asyncio.create_task(rest(each)) for each in (now, early, one)]
        (tmp_path / "go").touch()
        await context.wait(timeout=20)
        seen = [by_place(await each) for each in readers]
        late = by_place(await rest(context.lines(from_start=True)))

    assert seen == [expected, expected, {(1, Std.OUT): [*"acd"]}]
    assert late == expected == by_place(await rest(context.lines(from_start=True)))
    assert await rest(context.lines()) == []


@each_way
async def test_lines_come_while_the_rank_runs(way: str, tmp_path: Path) -> None:
    """What was written before is left out; a line is given as soon as it ends, and whole if it had begun."""
    script = (
        f"echo before; printf be; {WAITS_FOR.format(sign='go')}; echo gun; echo after; {WAITS_FOR.format(sign='x')}"
    )
    async with shell_group(tmp_path, script, **WAYS[way]) as context:
        await until_written(context.stdouts[0], "before\nbe")
        lines = context.lines(stream=Std.OUT)
        first = asyncio.create_task(anext(lines))
        await asyncio.sleep(0)
        (tmp_path / "go").touch()

        assert [(await first).text, (await anext(lines)).text] == ["begun", "after"]


async def test_readers_of_one_stream_all_keep_up(tmp_path: Path) -> None:
    """Each line reaches each of several readers while the rank runs, whatever it is that they do just then."""
    script = f"i=0; while [ $i -lt 100 ]; do i=$((i+1)); echo $i; sleep 0.001; done; {SLEEP}"
    async with shell_group(tmp_path, script) as context, asyncio.timeout(20):
        readers = [context.lines(0, Std.OUT, from_start=True) for _ in range(5)]
        for turn in range(1, 101):
            assert {line.text for line in await asyncio.gather(*map(anext, readers))} == {str(turn)}


def test_lines_can_be_read_in_another_event_loop_after_the_end(tmp_path: Path) -> None:
    """A context whose loop is gone still gives its lines."""

    async def run() -> PContext:
        async with start_processes("job", "sh", shells("echo a"), redirects=Std.OUT, log_dir=tmp_path) as context:
            async for _ in context.lines():
                pass
        return context

    async def read(context: PContext) -> list[str]:
        return await texts(context.lines(from_start=True))

    assert asyncio.run(read(asyncio.run(run()))) == ["a"]


@pytest.mark.parametrize("last", [0, 1, 2, 3, 10_000])
async def test_the_last_lines_can_be_had_first(last: int, tmp_path: Path) -> None:
    """Of a stream that goes on they are the lines that have ended, and the open one follows; of one at its end, any."""
    script = f"seq 9999; printf open; {WAITS_FOR.format(sign='go')}; echo ed; printf end"
    past = [str(number) for number in range(1, 10_000)]
    async with shell_group(tmp_path, script) as context:
        await until_written(context.stdouts[0], "open")
        lines = context.lines(stream=Std.OUT, last=last)
        (tmp_path / "go").touch()

        assert await texts(lines) == [*past[max(9999 - last, 0) :], "opened", "end"]
        assert await texts(context.lines(last=last)) == [*past, "opened", "end"][max(10_001 - last, 0) :]


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo a; seq -s '\r' 99999; echo b", ["99999", "b"]),
        ("echo a; seq -s '\r' 99999; seq 2", ["1", "2"]),
        (f"head -c {5 * LINE_LIMIT} /dev/zero", ["\0" * LINE_LIMIT + " [cut by aioelastic]", "\0" * LINE_LIMIT]),
    ],
    ids=["bar", "lines after a bar", "no line end"],
)
async def test_the_last_of_very_long_lines_can_be_had(script: str, expected: list[str], tmp_path: Path) -> None:
    """What is longer than a line may be is not read from its beginning, and given as far as a line may be long."""
    async with shell_group(tmp_path, script) as context:
        await context.wait()
        assert await texts(context.lines(0, Std.OUT, last=2)) == expected


@pytest.mark.filterwarnings(FORK_WARNING)
async def test_lines_of_functions_are_given(tmp_path: Path) -> None:
    """A rank that is a function is read like one that is a command, and a line says when it was read."""
    calls = {0: ("a",), 1: ("b",)}
    async with start_processes(
        "job", print_both, calls, start_method="fork", log_dir=tmp_path, redirects=Std.OUT, tee=Std.ERR
    ) as context:
        began = time.time()
        lines = await rest(context.lines(from_start=True))

    assert by_place(lines) == {(0, Std.OUT): ["a"], (0, Std.ERR): ["a"], (1, Std.OUT): ["b"], (1, Std.ERR): ["b"]}
    assert all(began <= line.time <= time.time() for line in lines)
    with pytest.raises(FrozenInstanceError):
        lines[0].text = "other"  # type: ignore[misc]


async def test_a_line_reads_as_on_the_console(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Progress bars, carriage returns, bytes that are no text, and lines over the limit give what the console shows."""
    script = (
        r"printf '1%%\r2%%\r\n\nx\r\n\377y\303\244\f\302\205z\n'; "
        f"head -c {LINE_LIMIT + 5} /dev/zero | tr '\\0' z; echo; printf 'p\rq'"
    )
    async with shell_group(tmp_path, script, redirects=Std.NONE, tee=Std.ALL) as context:
        read = await texts(context.lines(from_start=True))
    shown = capfd.readouterr().out.removesuffix("\n").split("\n")

    assert [f"[test0]:{text}" for text in read] == shown
    assert [*read[:4], read[-1]] == ["2%", "", "x", "\ufffdy\xe4\f\x85z", "q"]
    assert len(read) == 7


@pytest.mark.parametrize("way", ["redirected", "teed"])
async def test_a_reader_that_does_not_read_holds_up_nobody(
    way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A rank writes 20 MB and ends while its reader is away, which holds little and then finds every line."""
    flood = f"echo first; {WAITS_FOR.format(sign='go')}; yes $(printf %0999d 7) | head -n 20000; echo last"
    async with shell_group(tmp_path, flood, **WAYS[way]) as context:
        lines = context.lines(0, Std.OUT, from_start=True)
        assert (await anext(lines)).text == "first"
        (tmp_path / "go").touch()
        assert len((await anext(lines)).text) == 999
        result = await context.wait(timeout=60)
        assert result is not None
        assert not result.is_failed()
        assert sum(map(len, lines._texts)) <= CHUNK_BYTES
    found = await texts(lines)
    capfd.readouterr()

    assert len(found) == 20_000
    assert found[-1] == "last"
    assert {len(text) for text in found[:-1]} == {999}


async def test_others_have_their_turn_while_lines_are_read(tmp_path: Path) -> None:
    """Of a chunk with thousands of lines only some are given before the loop goes on."""
    async with shell_group(tmp_path, "yes | head -n 30000") as context:
        await context.wait(timeout=60)
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    found = await texts(context.lines(from_start=True))
    counting.cancel()

    assert found == ["y"] * 30_000
    assert turns >= 30_000 // 200


@pytest.mark.parametrize("way", ["redirected", "teed"])
async def test_a_reader_that_is_dropped_leaves_nothing(way: str, tmp_path: Path) -> None:
    """Leaving the loop, and cancelling a task that reads, gives back threads, descriptors and watches at once."""
    async with shell_group(tmp_path, f"echo a; {SLEEP}", **WAYS[way]) as context:
        async for line in context.lines(from_start=True):
            assert line.text == "a"
            assert held_by_readers()
            break
        await until(lambda: not held_by_readers())
        waiting = asyncio.create_task(texts(context.lines()))
        unread = context.lines()
        await until(held_by_readers)
        tasks = asyncio.all_tasks()
        waiting.cancel()
        await asyncio.wait([waiting])
        assert tasks - asyncio.all_tasks() == {waiting}
        del waiting, unread, tasks
        await until(lambda: not held_by_readers())


def test_a_reader_dropped_while_its_loop_stands_leaves_nothing(tmp_path: Path) -> None:
    """A loop that may never run again cannot give back what the reader had: it is given back at once."""
    kept: list[LineStream] = []  # not the task's result: tasks may live longer

    async def begin() -> None:
        args = shells(f"echo a; {SLEEP}")
        context = await start_processes("job", "sh", args, redirects=Std.OUT, log_dir=tmp_path)
        kept.append(context.lines(from_start=True))
        assert (await anext(kept[0])).text == "a"
        await context.close(timeout=0)

    loop = asyncio.new_event_loop()
    loop.run_until_complete(begin())
    (thread,) = [each for each in threading.enumerate() if each.name in held_by_readers()]
    kept.clear()
    loop.close()
    thread.join(10)
    assert not held_by_readers()


def held_by_readers() -> list[str]:
    """Give the threads and descriptors that readers of lines have."""
    held = [each.name for each in threading.enumerate() if each.name == "aioelastic: log lines"]
    for each in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            held += [name for name in [str(each.readlink())] if "inotify" in name]
    return held


@pytest.mark.parametrize("way", ["redirected", "teed"])
async def test_cancelled_waits_lose_nothing(way: str, tmp_path: Path) -> None:
    """Tasks that share a reader, and are cancelled at any moment, have each line once between them."""
    script = "i=0; while [ $i -lt 300 ]; do i=$((i+1)); echo $i; done"
    found: list[int] = []

    async def read(lines: LineStream) -> None:
        while True:
            found.append(int((await anext(lines)).text))

    async with shell_group(tmp_path, script, **WAYS[way]) as context:
        lines = context.lines(from_start=True)
        turns = 0
        while len(found) < 300:
            tasks = [asyncio.create_task(read(lines)) for _ in range(2)]
            for _ in range(turns % 5):
                await asyncio.sleep(0)
            turns += 1
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

        assert found == [*range(1, 301)]


async def test_what_cannot_be_read_is_refused_with_a_remedy(tmp_path: Path) -> None:
    """Without a word about rank and stream there is what can be read; with one, or with nothing at all, an error."""
    fifo, shared = tmp_path / "fifo", str(tmp_path / "shared")
    os.mkfifo(fifo)
    keeps_open = os.open(fifo, os.O_RDWR)
    dest = LogsDest({0: str(tmp_path / "out"), 1: shared, 2: str(fifo)}, {1: shared})
    args = shells("echo a", "echo b", "echo c")
    async with start_processes("job", "sh", args, logs_specs=Own(dest)) as context:
        assert by_place(await rest(context.lines(from_start=True))) == {(0, Std.OUT): ["a"]}
        with pytest.raises(SpecificationError, match=r"stderr of rank 0 has no log file .*: redirect or tee it"):
            context.lines(0, Std.ERR)
        for rank, path in ((1, shared), (2, str(fifo))):
            with pytest.raises(SpecificationError, match=f"of rank {rank} cannot be read from '{path}'.*give it a"):
                context.lines(rank)
    os.close(keeps_open)


async def test_wrong_arguments_and_states_are_refused(tmp_path: Path) -> None:
    """No such rank, no such stream, the wrong types, and a context that was not started are typed errors at once."""
    refused = start_processes("job", "/no/such/program", {0: ()}, redirects=Std.ALL, log_dir=tmp_path)
    with pytest.raises(FileNotFoundError):
        await refused
    starting = start_processes("job", "true", {0: ()}, redirects=Std.ALL, log_dir=tmp_path)
    for each in (refused.context, starting.context):
        with pytest.raises(ContextStateError, match=r"call start\(\) before lines\(\)"):
            each.lines()
    async with starting as context:
        for rank in (1, -1):
            with pytest.raises(RanksError, match=r"the ranks are 0\.\.0"):
                context.lines(rank)
        for wrong in (True, "0", 1.0):
            with pytest.raises(SpecificationTypeError, match="rank must be an int"):
                context.lines(wrong)  # type: ignore[arg-type]
            with pytest.raises(SpecificationTypeError, match=r"stream must be Std\.OUT"):
                context.lines(0, wrong)  # type: ignore[arg-type]
        for stream in (Std.NONE, 4):
            with pytest.raises(SpecificationError, match=r"give Std\.OUT or Std\.ERR"):
                context.lines(0, stream)  # type: ignore[arg-type]
        with pytest.raises(SpecificationTypeError, match="last must be a number of lines"):
            context.lines(last="3")  # type: ignore[arg-type]
        for options in ({"last": -1}, {"last": 1, "from_start": True}):
            with pytest.raises(SpecificationError, match="last"):
                context.lines(**options)  # type: ignore[arg-type]
        assert await rest(context.lines(0, Std.ALL)) == []


async def test_a_file_that_others_change_ends_no_reader(tmp_path: Path) -> None:
    """Emptied, it is read on from its new beginning; removed or replaced, it is left, and later asked for in vain."""
    script = (
        f"echo ready; {'; '.join(f'{WAITS_FOR.format(sign=each)}; echo {each}' for each in ('one', 'two'))}; {SLEEP}"
    )
    async with shell_group(tmp_path, script, script) as context:
        log = Path(context.stdouts[0])
        lines = context.lines(0, Std.OUT)
        first = asyncio.create_task(anext(lines))
        log.write_bytes(b"")
        (tmp_path / "one").touch()
        assert (await first).text == "one"
        second = asyncio.create_task(texts(lines))
        log.unlink()
        log.write_text("somebody else's\n")
        with pytest.raises(SpecificationError, match="of rank 0 has lost its log file"):
            context.lines(0, Std.OUT)
        (tmp_path / "two").touch()
        await until_written(context.stdouts[1], "two")
    assert await second == []


async def test_what_a_file_held_before_belongs_to_others(tmp_path: Path) -> None:
    """A specification of the user's can name a file that is there: the group's lines begin at its end."""
    log = tmp_path / "out"
    log.write_text("of yesterday\n")
    async with start_processes("job", "sh", shells("echo new"), logs_specs=Own(LogsDest({0: str(log)}))) as context:
        assert await texts(context.lines(from_start=True)) == ["new"]


async def test_running_out_of_descriptors_is_an_error_that_passes(tmp_path: Path) -> None:
    """A reader that cannot open a file says so, and goes on when it can; one that cannot be made says so, too."""
    async with shell_group(tmp_path, f"echo ready; {SLEEP}") as context:
        # The first one imports modules, for which there would be no descriptor either.
        await anext(context.lines(from_start=True))
        await asyncio.sleep(0)  # it is gone, and so is its watch
        with no_descriptors(), pytest.raises(OSError, match=r"Too many open files.*fs\.inotify"):
            context.lines()
        lines = context.lines(from_start=True)
        with no_descriptors(), pytest.raises(OSError, match="Too many open files"):
            await anext(lines)
        assert (await anext(lines)).text == "ready"


@contextlib.contextmanager
def no_descriptors() -> Iterator[None]:
    """Have the system give no new descriptor."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (3, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
