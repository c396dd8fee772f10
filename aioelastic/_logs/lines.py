"""From the raw chunks of one stream to what the console and the filtered copies get (pure).

A *record* is what gets a prefix of its own: a line, on a terminal also a state of a progress bar that ends
with a carriage return, or a piece of a line over the limit. A *block* is a run of whole records. Everything
here works on whole chunks by a few calls into C, and looks at a single line only where something in it asks
for that.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

from aioelastic._base.defaults import LINE_LIMIT
from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._logs.terminal import SGR_BYTES, TerminalSanitiser, close_colours

FilterEntry: TypeAlias = str | re.Pattern[str]
"""What a filtered copy looks for: a substring, or a pattern searched for."""

FilterEntries: TypeAlias = tuple[FilterEntry, ...]
"""The checked entries of one stream."""

CUT_MARK: Final = b" [cut by aioelastic]"
"""What stands at the end of a piece of a line over the limit, except of its last piece."""

_LEAST_LIMIT: Final = SGR_BYTES + 1
"""A piece must hold the longest thing that is not cut through, or cutting would never get on."""

_MANY_HITS: Final = 100
"""Hits in a block from which looking at every line (about 300 us) is faster than cutting out each."""

_RECORD: Final = re.compile(rb"[^\r\n]*[\r\n]")

_UNFINISHED_CHARACTER: Final = re.compile(
    rb"(?:[\xc2-\xf4]|[\xe0-\xf4][\x80-\xbf]|[\xf0-\xf4][\x80-\xbf]{2})\Z",
)


class Cut(NamedTuple):
    """What is ready to be shown.

    Attributes:
        data: Whole records; of `LineCutter.take_partial`, a record without its end.
        continues: Whether the first of them goes on with the line that a partial began: it needs no prefix as
            long as that line is the console's last.
    """

    data: bytes
    continues: bool


_NOTHING: Final = Cut(b"", continues=False)


class LineCutter:
    r"""Cuts the chunks of one stream into blocks of whole records, without prefixes.

    ``\n`` and ``\r\n`` end a line. A lone ``\r`` ends a record too: on a terminal the record is passed with
    it, and all is sanitised; elsewhere only the last non-empty state of a line is given, once the line ends.
    Lines over the limit are cut into pieces as they arrive, between characters. Except for partials that are
    taken, the result does not depend on how the stream came in chunks.

    Args:
        terminal: Whether the records go to a terminal.
        limit: Bytes of a record, without prefix and mark; at least 68.

    Raises:
        ValueError: The limit is too small for a colour sequence.
    """

    __slots__ = ("_limit", "_sanitiser", "_shown", "_tail")

    def __init__(self, *, terminal: bool, limit: int = LINE_LIMIT) -> None:
        if limit < _LEAST_LIMIT:
            raise ValueError(f"a line limit of {limit} bytes is too small: give {_LEAST_LIMIT} or more")
        self._limit = limit
        self._sanitiser = TerminalSanitiser() if terminal else None
        # The unfinished line, at most the limit and two bytes. On a terminal a \r at its end may become \r\n.
        # Elsewhere it may be a last state behind its \r, with or without one after it: see _last_kept.
        self._tail = b""
        self._shown = 0

    @property
    def partial(self) -> bytes:
        """The pending bytes that may be shown after a silence; off a terminal, none of a progress bar."""
        return self._closed(self._showable())

    def take_partial(self) -> Cut:
        """Hand out the partial as shown now; the rest of its line will come as a continuation."""
        showable = self._showable()
        cut = Cut(self._closed(showable), continues=self._shown > 0)
        self._tail = self._tail[len(showable) :]
        self._shown += len(showable)
        return cut

    def feed(self, chunk: bytes) -> Cut:
        """Take the next chunk and give the records that are complete now."""
        if self._sanitiser is not None:
            chunk = self._sanitiser.feed(chunk)
        tail = self._tail
        if self._shown or b"\r" in chunk or b"\r" in tail:
            return self._feed_with_care(tail + chunk)
        end = chunk.rfind(b"\n") + 1
        block = tail + chunk[:end] if end else b""
        pending = chunk[end:] if end else tail + chunk
        if len(pending) > self._limit or _has_overlong(block, self._limit):
            return self._feed_with_care(tail + chunk)
        self._tail = pending
        return Cut(self._closed(block), continues=False) if block else _NOTHING

    def finish(self) -> Cut:
        r"""Give what is left at the end of the stream, as if a ``\n`` came; nothing after a whole record.

        What is fed afterwards is a new stream.
        """
        data = self._tail if self._sanitiser is None else self._tail + self._sanitiser.finish()
        # Of carriage returns alone there is no state to give; on a terminal they end what is there already.
        empty = not data.strip(b"\r") if self._sanitiser is None else not data
        if empty and not self._shown:
            self._tail = b""
            return _NOTHING
        return self._feed_with_care(data + b"\n")

    def _showable(self) -> bytes:
        """Give the part of the tail that may be shown now."""
        if self._sanitiser is not None:
            return self._tail.removesuffix(b"\r")
        if b"\r" in self._tail:
            return b""
        return self._tail[: len(self._tail) - _unfinished(self._tail)]

    def _feed_with_care(self, data: bytes) -> Cut:
        """Cut data that has carriage returns, lines over the limit or the rest of a shown line in it."""
        # On a terminal by definition, elsewhere for speed (a line's last state is the same with and without).
        data = self._with_pieces(data.replace(b"\r\n", b"\n"))
        continues = self._shown > 0
        if self._sanitiser is not None:
            end = max(data.rfind(b"\n"), data.rfind(b"\r", 0, -1)) + 1
            block, self._tail = data[:end], data[end:]
        else:
            end = data.rfind(b"\n") + 1
            first = data.find(b"\n") + 1 if continues else 0
            block = _continuation(data[:first]) + _last_states(data[first:end])
            self._tail = _last_kept(data[end:])
        if end:
            self._shown = 0
        return Cut(self._closed(block), continues) if block else _NOTHING

    def _with_pieces(self, data: bytes) -> bytes:
        """Put the mark and a line end into every run without a record end that is over the limit."""
        parts: list[bytes] = []
        start = done = 0
        room = self._limit - self._shown
        returns = b"\r" in data
        while len(data) - start > room:
            end = data.rfind(b"\n", start, start + room + 1)
            if returns:
                end = max(end, data.rfind(b"\r", start, start + room + 1))
            if end >= 0:
                start = end + 1
            else:
                start = _cut_position(data, start, start + room, colours=self._sanitiser is not None)
                parts += (data[done:start], CUT_MARK, b"\n")
                done = start
            room = self._limit
        return b"".join((*parts, data[done:])) if parts else data

    def _closed(self, records: bytes) -> bytes:
        """Give the records, for a terminal with their colours closed."""
        return records if self._sanitiser is None else close_colours(records)


def _has_overlong(block: bytes, limit: int) -> bool:
    """Whether one of these whole lines is over the limit: jumps to the last line end within reach of each."""
    start = 0
    while len(block) - start > limit:
        start = block.rfind(b"\n", start, start + limit + 1) + 1
        if not start:
            return True
    return False


def _cut_position(data: bytes, start: int, cut: int, *, colours: bool) -> int:
    """Move a cut back to the beginning of the character, or the colour sequence, that it would go through."""
    cut -= _unfinished(data[max(start, cut - 3) : cut])
    if colours:
        escape = data.rfind(b"\x1b", max(start, cut - SGR_BYTES), cut)
        if escape >= 0 and data.find(b"m", escape, cut) < 0:
            return escape
    return cut


def _unfinished(data: bytes) -> int:
    """Give the length of the unfinished UTF-8 character at the end of the data."""
    found = _UNFINISHED_CHARACTER.search(data, max(len(data) - 3, 0))
    return len(found[0]) if found else 0


def _last_state(line: bytes) -> bytes:
    r"""Give the last non-empty of the states of a line (without its ``\n``), or nothing."""
    states = line.rstrip(b"\r")
    return states[states.rfind(b"\r") + 1 :]


def _last_states(block: bytes) -> bytes:
    """Reduce each line of a block to its last state; lines with one state are not touched."""
    parts: list[bytes] = []
    done = 0
    found = block.find(b"\r")
    while found >= 0:
        start = max(block.rfind(b"\n", done, found) + 1, done)
        end = block.find(b"\n", found)
        parts += (block[done:start], _last_state(block[start:end]))
        done = end
        found = block.find(b"\r", end)
    return b"".join((*parts, block[done:])) if parts else block


def _last_kept(tail: bytes) -> bytes:
    r"""Reduce an unfinished line to what its end may still need.

    That is the last non-empty state, with one ``\r`` after it if there was one, since a newer state may be on
    its way, and one before it if there was one, since then it does not continue what was shown of the line.
    """
    states = tail.rstrip(b"\r")
    kept = states[max(states.rfind(b"\r"), 0) :]
    return kept + b"\r" if len(states) < len(tail) else kept


def _continuation(line: bytes) -> bytes:
    """Give what goes on with a shown beginning; a newer state is a record of its own."""
    begun, _, states = line.removesuffix(b"\n").partition(b"\r")
    state = _last_state(states)
    if state:
        return b"\n" + state + b"\n"
    return begun + b"\n" if line else b""


def prefixed(block: bytes, prefix: bytes) -> bytes:
    """Put the prefix before each record of a block."""
    if not block or not prefix:
        return block
    if b"\r" in block:  # states of a progress bar, on a terminal
        return prefix + prefix.join(_RECORD.findall(block))
    # One prefix too many at the end, and a view that leaves it out, save the copy that block[:-1] would take.
    rendered = block.replace(b"\n", b"\n" + prefix)
    return b"".join((prefix, memoryview(rendered)[: -len(prefix)]))


class LineFilter:
    """Selects the lines that contain any of some entries, looked for in the prefixed line without its end.

    Args:
        entries: What to look for, as `check_filters` gives them. Without any, no line is selected.
        prefix: The prefix of the rank's lines, text in UTF-8.
    """

    __slots__ = ("_all", "_needles", "_patterns", "_prefix", "_straddles")

    def __init__(self, entries: Sequence[FilterEntry], prefix: bytes) -> None:
        words = {_needle(entry) for entry in entries if isinstance(entry, str)}
        self._prefix = prefix
        self._patterns = [entry for entry in entries if not isinstance(entry, str)]
        self._all = any(word in prefix for word in words)
        # An entry may begin in the prefix and end in the line. What is left of it then begins a line, and
        # with the "\n" before that line it is one more thing to look for in the block.
        lefts = {left: word for word in words for left in _left_by_prefix(word, prefix) if b"\n" not in left}
        self._straddles = bool(lefts)
        self._needles = {word: word for word in words if b"\n" not in word}
        self._needles |= {b"\n" + left: word for left, word in lefts.items()}

    def select(self, block: bytes) -> bytes:
        r"""Give the matching lines of a block, prefixed; the block is one cut for no terminal (no ``\r``)."""
        if self._all:
            return prefixed(block, self._prefix)
        if self._patterns:
            return self._select_by_line(block, self._needles.values())
        searched = b"\n" + block if self._straddles else block
        hits = {needle: hit for needle in self._needles if (hit := searched.find(needle)) >= 0}
        if sum(map(searched.count, hits)) > _MANY_HITS:
            return self._select_by_line(block, {self._needles[needle] for needle in hits})
        return self._select_by_hit(searched, hits)

    def _select_by_hit(self, block: bytes, hits: dict[bytes, int]) -> bytes:
        """Cut out the line around the nearest hit of all, go on after it, until there are no more hits."""
        parts: list[bytes] = []
        while hits:
            hit = min(hits.values())
            # A needle with "\n" before it hits at the end of the line before its own.
            start = block.rfind(b"\n", 0, hit + 1) + 1
            end = block.find(b"\n", start)
            parts += (self._prefix, block[start:end], b"\n")
            # The "\n" itself may belong to the hit in the next line.
            hits = {needle: place if place >= end else block.find(needle, end) for needle, place in hits.items()}
            hits = {needle: place for needle, place in hits.items() if place >= 0}
        return b"".join(parts)

    def _select_by_line(self, block: bytes, words: Iterable[bytes]) -> bytes:
        """Look at every line for these words and the patterns.

        What a pattern finds in a line may not be what it finds in a block.
        """
        lines = [self._prefix + line for line in block.split(b"\n")[:-1]]
        selected = {index for word in words for index, line in enumerate(lines) if word in line}
        if self._patterns:
            prefix = self._prefix.decode(errors="replace")
            # "\n" ends every undecodable sequence, so decoding all lines at once gives the text of each.
            texts = [prefix + text for text in block.decode(errors="replace").split("\n")[:-1]]
            for pattern in self._patterns:
                selected.update(index for index, text in enumerate(texts) if pattern.search(text))
        return b"".join([lines[index] + b"\n" for index in sorted(selected)])


def _needle(entry: str) -> bytes:
    """Give the bytes to look for; text from ``os.fsdecode`` stands for the raw bytes it came from."""
    return entry.encode("utf-8", "surrogateescape")


def _left_by_prefix(word: bytes, prefix: bytes) -> Iterable[bytes]:
    """Give what is left of a word for each way in which its beginning ends the prefix."""
    longest = min(len(word) - 1, len(prefix))
    return (word[length:] for length in range(1, longest + 1) if prefix.endswith(word[:length]))


def check_filters(argument: str, filters: object) -> FilterEntries:
    """Check a list of filter entries as people pass it.

    Args:
        argument: The name of the argument, for messages.
        filters: The entries, or ``None`` for no filtered copy.

    Returns:
        The entries; empty for ``None``.

    Raises:
        SpecificationTypeError: It is no list, or an entry is neither text nor a compiled pattern of text.
        SpecificationError: An entry has characters that no output can have.
    """
    if filters is None:
        return ()
    if isinstance(filters, str | bytes) or not isinstance(filters, Iterable):
        example = f"[{filters!r}]" if isinstance(filters, str | re.Pattern) else "['ERROR']"
        raise SpecificationTypeError(f"{argument} is {filters!r}: pass a list of entries, such as {example}")
    entries = tuple(filters)
    for index, entry in enumerate(entries):
        text = entry.pattern if isinstance(entry, re.Pattern) else entry
        if not isinstance(text, str):
            raise SpecificationTypeError(
                f"{argument}[{index}] is {entry!r}: an entry is a str (a substring) or a re.Pattern of str"
            )
        if text is entry:
            try:
                _needle(text)
            except UnicodeEncodeError as error:
                raise SpecificationError(
                    f"{argument}[{index}] is {entry!r}: no output has {error.object[error.start]!r}"
                ) from error
    return entries
