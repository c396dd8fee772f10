"""Whether logs, consoles and filtered copies hold what the ranks wrote (pure, but for reading the files)."""

import signal
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from soaking.consoles import READ
from soaking.entries import Entries
from soaking.journal import ENDING
from soaking.output import WORD, sequence, shown_lines
from soaking.plans import COMMAND, GroupPlan, RoundPlan

_NAMES = ("stdout", "stderr")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What is known of one stream.

    Attributes:
        where: Group, rank and stream, for people.
        prefix: What stands before its lines.
        shown: It may use the console.
        way: Its way, as `GroupPlan.way` gives it.
        whole: The bytes of all records that were begun.
        least: How many of them were written for certain.
        tailed: The interpreter may have written more after all records: a traceback.
        content: What its file has, or ``None`` if there is none.
    """

    where: str
    prefix: bytes
    shown: bool
    way: str
    whole: bytes
    least: int
    tailed: bool
    content: bytes | None

    @property
    def lines(self) -> list[bytes]:
        """The lines that a console shows of it."""
        return list(shown_lines(self.whole if self.content is None else self.content))

    @property
    def is_exact(self) -> bool:
        """Whether it is known to the byte."""
        return self.content is not None or (self.least == len(self.whole) and not self.tailed)


def written_streams(group: GroupPlan, journals: Sequence[Entries], logs: Path, *, alive: bool) -> list[list[Written]]:
    """Collect what is known of a group's streams: rank, then stream; whether the supervisor has lived matters."""
    return [
        [_written(group, rank, stream, journal, logs, alive=alive) for stream in range(2)]
        for rank, journal in enumerate(journals)
    ]


def _written(group: GroupPlan, rank: int, stream: int, journal: Entries, logs: Path, *, alive: bool) -> Written:
    plan = group.ranks[rank]
    whole, offsets = sequence(plan.seed, stream, journal.begun[stream])
    recorded = group.method != COMMAND or plan.ending == "raise"
    crashes = plan.ending == "kill" and plan.number in {signal.SIGSEGV, signal.SIGABRT}
    traced = journal.phase == ENDING and recorded and (crashes or plan.ending == "raise")
    # Of a supervisor that has died, a new process may learn while it is still told what to do.
    orphaned = not alive and group.method in {"spawn", "forkserver"} and not journal.phase
    files = list(logs.glob(f"*/attempt_0/{rank}/{_NAMES[stream]}.log"))
    return Written(
        where=f"group {group.name} rank {rank} {_NAMES[stream]}",
        prefix=f"[{group.name}{rank}]:".encode(),
        shown=group.is_shown(rank),
        way=group.way(rank, stream),
        whole=whole,
        least=offsets[journal.done[stream]],
        tailed=stream == 1 and (traced or orphaned),
        content=files[0].read_bytes() if files else None,
    )


def judge_file(stream: Written, *, kept: bool, drained: bool) -> Iterator[tuple[str, str]]:
    """Say what is wrong with a stream's file.

    Args:
        stream: The stream.
        kept: There has to be one, where the stream goes to a file.
        drained: It has to have all that was written.
    """
    content = stream.content
    if content is None:
        if kept and stream.way in {"file", "tee"}:
            yield "file", f"{stream.where} has none"
        return
    if stream.way not in {"file", "tee"}:
        yield "file", f"{stream.where} has one"
    tail = content[len(stream.whole) :] if stream.tailed else b""
    body = content[: len(content) - len(tail)]
    if not stream.whole.startswith(body):
        pairs = zip(body + b"\0", stream.whole + b"\1", strict=False)
        place = next(index for index, (one, other) in enumerate(pairs) if one != other)
        yield "file", f"{stream.where} ({stream.way}) differs from byte {place} on: {content[place : place + 80]!r}"
    elif drained and len(body) < stream.least:
        yield "file", f"{stream.where} ({stream.way}) has {len(body)} of {stream.least} bytes that were written"


def judge_consoles(
    plan: RoundPlan, streams: Sequence[Written], consoles: tuple[bytes | None, bytes | None], *, complete: bool
) -> Iterator[tuple[str, str]]:
    """Say what is wrong with what the consoles have shown.

    Args:
        plan: The round.
        streams: All streams, those of stdout and of stderr in turn.
        consoles: What each of the two has got, ``None`` where that is not known.
        complete: They have to have it all.
    """
    # An object is a console of its own; what is written to its descriptor goes elsewhere.
    shared = plan.consoles[1] == "same" and plan.consoles[0] != "object"
    for number, content in enumerate(consoles):
        if content is None or plan.consoles[number] not in READ or (shared and number):
            continue
        there = [each for index, each in enumerate(streams) if shared or index % 2 == number]
        disturbed = streams if plan.consoles[1] == "same" else there
        if any(each.way == "inherit" for each in disturbed):
            continue
        shown = [each for each in there if each.way == "tee" and each.shown]
        if plan.consoles[number] == "object":
            shown = [_as_text(each) for each in shown]
        yield from _judge_lines(f"console {_NAMES[number]}", content, shown, complete=complete)


def judge_filtered(
    group: GroupPlan, streams: Sequence[Written], logs: Path, *, complete: bool
) -> Iterator[tuple[str, str]]:
    """Say what is wrong with a group's filtered copies."""
    for number, name in enumerate(_NAMES):
        teed = [each for each in streams[number::2] if each.way == "tee"]
        files = list(logs.glob(f"*/attempt_0/filtered_{name}.log"))
        if not files:
            if complete and group.filtered and group.keeps_logs and teed:
                yield "filtered copy", f"group {group.name} has none of {name}"
            continue
        expected = {each.prefix: [line for line in each.lines if WORD in line] for each in teed}
        found: dict[bytes, list[bytes]] = {each: [] for each in expected}
        for line in files[0].read_bytes().split(b"\n")[:-1]:
            prefix = line[: line.find(b":") + 1]
            found.setdefault(prefix, []).append(line[len(prefix) :])
        for prefix, lines in found.items():
            right = expected.get(prefix, [])
            if lines != (right if complete else right[: len(lines)]):
                yield "filtered copy", f"group {group.name} {name} {prefix!r}: {lines[-3:]} for {right[-3:]}"


def _judge_lines(where: str, content: bytes, shown: Sequence[Written], *, complete: bool) -> Iterator[tuple[str, str]]:
    by_prefix: dict[bytes, list[bytes]] = {each.prefix: [] for each in shown}
    lines = content.split(b"\n")
    last = lines.pop()
    if last and complete:
        yield "console", f"{where} ends in the middle of a line: {last[-80:]!r}"
    for line in lines:
        prefix = line[: line.find(b"]:") + 2]
        if prefix in by_prefix:
            by_prefix[prefix].append(line[len(prefix) :])
        else:
            yield "console", f"{where} has a line of nobody: {line[:200]!r}"
    prefixes = [each.prefix for each in shown]
    for each in shown:
        if prefixes.count(each.prefix) == 1:  # two streams of a rank on one console are not told apart
            problem = _compared(by_prefix[each.prefix], each.lines, complete=complete and each.is_exact)
            if problem and not each.tailed:
                yield "console", f"{where}, {each.where}: {problem}"


def _compared(lines: Sequence[bytes], expected: Sequence[bytes], *, complete: bool) -> str:
    """Say in what lines differ from the expected ones; one may have been shown in parts, others between them."""
    left = iter(expected)
    rest: bytes | None = None
    for number, line in enumerate(lines):
        if not rest:
            rest = next(left, None)
        if rest is None or not rest.startswith(line) or (not line and rest):
            return f"line {number} is {line[:80]!r} of {len(line)} bytes, not {rest and rest[:80]!r}"
        rest = rest[len(line) :]
    missing = [*([rest] if rest else []), *left]
    return f"{len(missing)} lines are missing, the first {missing[0][:80]!r}" if complete and missing else ""


def _as_text(stream: Written) -> Written:
    """Give a stream as an object with a ``write`` method gets it."""

    def escaped(data: bytes) -> bytes:
        return data.decode("utf-8", "backslashreplace").encode("utf-8", "surrogateescape")

    return replace(
        stream,
        whole=escaped(stream.whole),
        least=len(escaped(stream.whole[: stream.least])),
        content=None if stream.content is None else escaped(stream.content),
    )
