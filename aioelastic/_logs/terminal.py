"""What a rank may do to a terminal: print text in colours, and nothing else (pure)."""

import codecs
import re
from typing import Final

SGR_LIMIT: Final = 64
"""Parameter bytes a colour sequence may have; two 24-bit colours with every attribute take about 60."""

SGR_BYTES: Final = len("\x1b[") + SGR_LIMIT + len("m")
"""Length of the longest colour sequence that is passed."""

_RESET: Final = b"\x1b[0m"

_CONTROLS: Final = bytes({*range(0x20), 0x7F} - set(b"\t\n\r"))
"""The ASCII controls that are not passed as they are."""

_CONTROLS_BUT_ESCAPE: Final = _CONTROLS.replace(b"\x1b", b"")

_SUSPECTS: Final = _CONTROLS + bytes(range(0x80, 0x100))
"""All bytes that need a closer look; in UTF-8 the C1 controls are high bytes too."""

_EIGHT_BIT_FORMS: Final = tuple((chr(0x40 + ord(final)), f"\x1b{final}") for final in "[]PX^_\\")
"""C1 introducers, which begin (or end) a sequence as their two-byte forms do."""

_STRING: Final = r"[\]PX^_][^\x07\x18\x1a\x1b\x80-\x9f\r\n]*+"
"""OSC, DCS, SOS, PM or APC after its escape: to BEL or ST, or to what aborts it.

A record end aborts it too: one unfinished title must not swallow all later lines.
"""

# Each pattern begins with a plain character, which the engine looks for fast. None repeats what could cross an
# escape, or gives back what it took: none goes over the same text again and again.
_FORBIDDEN_ESCAPE: Final = re.compile(
    rf"""
    \x1b
    (?!\[[0-9;:]{{0,{SGR_LIMIT}}}m)     # a colour stays
    (?:
        \[[\x20-\x3f]*+[@-~]?          # CSI
      | {_STRING}\x07?                 # OSC and its like; an ST at its end is an escape of its own
      | [\x20-\x2f]*+[0-~]?            # any other escape
    )
    """,
    re.VERBOSE,
)

_C1: Final = re.compile(rb"\xc2[\x80-\x9f]")

_UNFINISHED: Final = re.compile(rf"\x1b(?:\[[\x20-\x3f]*+|{_STRING}|[\x20-\x2f]*+)")

_UNDECODED: Final = re.compile(r"[\udc80-\udcff]")

_OPEN_COLOUR: Final = re.compile(rb"(\x1b\[(?!0*m)[0-9;:]*m[^\x1b\r\n]*+)(?!\x1b)")


def close_colours(text: bytes) -> bytes:
    """End each record of sanitised text, and its unfinished tail, in the terminal's own colours.

    Without it one rank's colour would run on into the next rank's line.
    """
    return _OPEN_COLOUR.sub(rb"\1" + _RESET, text) if b"\x1b" in text else text


class TerminalSanitiser:
    r"""Makes the chunks of one stream fit for a terminal.

    Text, tabs, record ends and complete colour sequences pass. Other escape sequences are removed whole,
    however the chunks divide them, other controls (C1 included) by themselves. Bytes that are no UTF-8 show
    as ``\xff``. The output is UTF-8 and never ends within a character or a colour sequence.
    """

    __slots__ = ("_begun", "_decoder")

    def __init__(self) -> None:
        # The incremental decoder keeps a character that a chunk ends in. Not with backslashreplace: that
        # takes 11 ms for 64 KiB of random bytes, and its backslash would look like a part of a sequence.
        self._decoder = codecs.getincrementaldecoder("utf-8")("surrogateescape")
        self._begun = ""

    def feed(self, chunk: bytes) -> bytes:
        """Give what may be shown of the next chunk; what it leaves unfinished waits for the next one."""
        waiting = self._begun or self._decoder.getstate()[0]
        # translate() with its result measured is seven times faster than a search with a compiled class.
        if not waiting and len(chunk.translate(None, _SUSPECTS)) == len(chunk):
            return chunk
        return self._passed(self._decoder.decode(chunk))

    def finish(self) -> bytes:
        """Give what the end of the stream leaves of an unfinished character; an unfinished sequence goes."""
        shown = self._passed(self._decoder.decode(b"", final=True))
        self._begun = ""
        return shown

    def _passed(self, text: str) -> bytes:
        """Give what passes of the text, and keep back a sequence it ends in."""
        text = self._begun + text
        self._begun = ""
        if not text.isascii():
            for eight_bit, seven_bit in _EIGHT_BIT_FORMS:
                text = text.replace(eight_bit, seven_bit)
        start = text.rfind("\x1b")
        if start >= 0:
            if _UNFINISHED.fullmatch(text, start):
                # Nothing of a longer one is shown, so its beginning will do: endless ones take no memory.
                self._begun = text[start : start + SGR_BYTES]
                text = text[:start]
            text = _FORBIDDEN_ESCAPE.sub("", text)
        # What is left of escapes are whole colours: removing single characters makes nothing else of them.
        shown = _encoded(text).translate(None, _CONTROLS_BUT_ESCAPE)
        return _C1.sub(b"", shown) if b"\xc2" in shown else shown


def _encoded(text: str) -> bytes:
    r"""Give the text in UTF-8, with undecodable bytes as ``\xff``."""
    if "\\udc" in text:
        return _UNDECODED.sub(lambda found: f"\\x{ord(found[0]) - 0xDC00:02x}", text).encode()
    # The codec writes an undecodable byte as \udcff. Rewriting that is much faster than a call for each byte,
    # and exact as long as the text itself does not say it.
    return text.encode("utf-8", "backslashreplace").replace(b"\\udc", b"\\x")
