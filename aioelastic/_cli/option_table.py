"""The options of ``aioelastic run`` as data: names, meaning, and how each is read from text (pure)."""

import math
import re
import signal
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from aioelastic._agent.static import STATIC_PORT
from aioelastic._agent.world_checks import LAST_PORT
from aioelastic._base.aliases import START_METHODS
from aioelastic._base.signals import ENDING, FAULTS, NOT_ENDING, UNSEEN, signal_name
from aioelastic._logs.std import Std
from aioelastic._numa.options import AffinityMode

COUNTED: Final = ("auto", "cpu", "gpu", "xpu")
"""Words in place of a number of ranks: it is counted what there is."""


class Option(NamedTuple):
    """One option.

    Attributes:
        name: Its long name without the dashes in front, spelled with ``-``.
        help: What it means, in a line or two.
        read: Makes its value of text; a `ValueError` says what would do. ``None`` for a flag.
        metavar: What its value is called in the help.
        default: Its value when it is not given.
        short: Its letter, or ``""``.
        variable: A variable besides ``PET_<NAME>`` that gives its value, or ``""``.
    """

    name: str
    help: str
    read: Callable[[str], Any] | None = None
    metavar: str = ""
    default: Any = None
    short: str = ""
    variable: str = ""

    @property
    def field(self) -> str:
        """The name as an identifier."""
        return self.name.replace("-", "_")

    @property
    def variables(self) -> tuple[str, ...]:
        """The variables that give its value, the first one set wins."""
        return (f"PET_{self.field.upper()}", *filter(None, (self.variable,)))

    def value(self, text: str) -> Any:
        """Read its value, or whether the flag is set, from text.

        Raises:
            ValueError: With the reason and what would do.
        """
        return _flag(text) if self.read is None else self.read(text)


def comma_list(text: str) -> tuple[str, ...]:
    """Read entries that are separated by commas; ``,,`` is a comma within an entry. Empty entries do not count.

    Example:
        >>> comma_list("loss,step 1,,000"), comma_list("")
        (('loss', 'step 1,000'), ())
    """
    # No argument and no variable has a NUL.
    entries = text.replace(",,", "\0").split(",")
    return tuple(entry.replace("\0", ",") for entry in entries if entry)


def _flag(text: str) -> bool:
    try:
        return bool(int(text))
    except ValueError:
        raise ValueError(f"{text!r} is neither on nor off: give 1 or 0") from None


def _text(text: str) -> str | None:
    return text or None


def _line(text: str) -> str:
    if "\n" in text or "\r" in text:
        raise ValueError(f"{text!r} has a line end: it is shown before every line, so give a name of one line")
    return text


def _whole(least: int, most: int | None = None) -> Callable[[str], int]:
    """Give a reader of whole numbers within bounds."""
    wanted = f"{least} or more" if most is None else f"{least}..{most}"

    def read(text: str) -> int:
        try:
            number = int(text)
        except ValueError:
            raise ValueError(f"{text!r} is no whole number: give {wanted}") from None
        if number < least or (most is not None and number > most):
            raise ValueError(f"{number} is out of bounds: give {wanted}")
        return number

    return read


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if math.isnan(seconds) or seconds < 0:
        raise ValueError(f"{text!r} is no number of seconds: give 0 or more")
    return seconds


def _one_of(*words: str) -> Callable[[str], str]:
    """Give a reader of one of some words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError(f"{text!r} is not known: give {', '.join(words[:-1])} or {words[-1]}")
        return text

    return read


def _nodes(text: str) -> tuple[int, int]:
    match = re.fullmatch(r"([0-9]{1,9})(?::([0-9]{1,9}))?", text.strip(), re.ASCII)
    least, most = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= least <= most:
        raise ValueError(f"{text!r} is no number of nodes: give one from 1 on, or a range such as 1:4")
    return least, most


def _ranks(text: str) -> int | str:
    if text in COUNTED:
        return text
    if not re.fullmatch(r"[0-9]{1,9}", text.strip(), re.ASCII) or int(text) < 1:
        raise ValueError(f"{text!r} is no number of ranks: give one from 1 on, or {', '.join(COUNTED)}")
    return int(text)


def _rank_set(text: str) -> frozenset[int] | None:
    parts = [part.strip() for part in text.split(",")] if text else []
    if not all(re.fullmatch(r"[0-9]{1,9}", part, re.ASCII) for part in parts):
        raise ValueError(f"{text!r} is no list of local ranks: give numbers from 0 on, as in 0,1,2")
    return frozenset(map(int, parts)) or None


def _signals(text: str) -> tuple[signal.Signals, ...]:
    names = [name.strip() for name in text.split(",")]
    unknown = [name for name in names if name not in signal.Signals.__members__]
    if unknown:
        raise ValueError(f"there is no signal {unknown[0]!r}: give names such as SIGTERM,SIGUSR1")
    chosen = tuple(dict.fromkeys(signal.Signals[name] for name in names))
    wrong = [number for number in chosen if number in UNSEEN | NOT_ENDING | FAULTS]
    if wrong:
        raise ValueError(
            f"{signal_name(wrong[0])} cannot be a word to end the ranks by: give names such as SIGTERM,SIGUSR1"
        )
    return chosen


OPTIONS: Final = (
    Option(
        name="nnodes",
        read=_nodes,
        metavar="N",
        default=(1, 1),
        help="number of nodes; a range such as 1:4 is taken as one node (default: 1)",
    ),
    Option(
        name="nproc-per-node",
        read=_ranks,
        metavar="N",
        default=1,
        help="number of ranks on this node: a number, or auto, cpu, gpu or xpu to count what there is (default: 1)",
    ),
    Option(
        name="rdzv-backend",
        read=_text,
        metavar="NAME",
        help="static: --rdzv-endpoint is where node 0 is; others have no effect on one node",
    ),
    Option(
        name="rdzv-endpoint",
        read=_text,
        metavar="HOST:PORT",
        help="with --rdzv-backend static the same as --master-addr and --master-port; else no effect on one node",
    ),
    Option(
        name="rdzv-id",
        read=_text,
        metavar="NAME",
        help="name of the run, and of its log directory (default: a fresh one; with --master-port, none)",
    ),
    Option(name="rdzv-conf", read=_text, metavar="KEY=VALUE,...", help="no effect: there is no store to configure"),
    Option(name="standalone", help="one node, whose ranks meet at a free port; what is done anyway"),
    Option(
        name="max-restarts",
        read=_whole(0),
        metavar="N",
        default=0,
        help="how many times a group that failed is run again (default: 0)",
    ),
    Option(
        name="monitor-interval",
        read=_seconds,
        metavar="SECONDS",
        help="no effect: ends of ranks are seen as they happen",
    ),
    Option(
        name="start-method",
        read=_one_of(*START_METHODS),
        metavar="METHOD",
        help="no effect on commands: it is for functions",
    ),
    Option(
        name="event-log-handler",
        read=_text,
        metavar="NAME",
        help="no effect: events are written to events.jsonl in the log directory",
    ),
    Option(name="role", read=_line, metavar="NAME", default="default", help="name of the ranks (default: default)"),
    Option(name="module", short="m", help="the script is the name of a module, as with python -m"),
    Option(name="no-python", help="the script is a program of its own, not run by Python"),
    Option(name="run-path", help="the script is a Python script, whatever --no-python says; it is run like any other"),
    Option(
        name="log-dir", read=_text, metavar="DIR", help="where to keep logs (default: a temporary directory, if needed)"
    ),
    Option(
        name="redirects",
        short="r",
        read=Std.from_str,
        metavar="STREAMS",
        default=Std.NONE,
        help="streams that go to files: 1 is stdout, 2 stderr, 3 both; by rank as in 0:3,1:2 (default: 0)",
    ),
    Option(
        name="tee",
        short="t",
        read=Std.from_str,
        metavar="STREAMS",
        default=Std.NONE,
        help="streams that go to files and to the console (default: 3 on a terminal if there is no -r, else 0)",
    ),
    Option(
        name="local-ranks-filter",
        read=_rank_set,
        metavar="RANKS",
        help="the only local ranks that are shown on the console, as in 0,1",
    ),
    Option(
        name="duplicate-stdout-filters",
        read=comma_list,
        metavar="TEXTS",
        default=(),
        help="copy teed lines of stdout that have one of these texts to filtered_stdout.log; ,, is a comma",
    ),
    Option(
        name="duplicate-stderr-filters",
        read=comma_list,
        metavar="TEXTS",
        default=(),
        help="copy teed lines of stderr that have one of these texts to filtered_stderr.log; ,, is a comma",
    ),
    Option(
        name="node-rank",
        read=_whole(0),
        metavar="K",
        help="number of this node, from 0 (several nodes: needed outside of Slurm)",
    ),
    Option(
        name="master-addr",
        read=_text,
        metavar="HOST",
        help="host of node 0 (several nodes: needed outside of Slurm; one node: localhost)",
    ),
    Option(
        name="master-port",
        read=_whole(0, LAST_PORT),
        metavar="PORT",
        help=f"port that rank 0 listens on (default: {STATIC_PORT}; on one node a free one)",
    ),
    Option(name="local-addr", read=_text, metavar="HOST", help="address of this node; on one node that of rank 0"),
    Option(
        name="logs-specs",
        read=_text,
        metavar="NAME",
        help="class that says where logs go, by its entry point in torchrun.logs_specs",
    ),
    Option(
        name="numa-binding",
        read=_one_of(*map(str, AffinityMode)),
        metavar="MODE",
        help=f"CPUs that each rank is bound to: {', '.join(AffinityMode)}; see aioelastic numa",
    ),
    Option(
        name="signals-to-handle",
        read=_signals,
        metavar="NAMES",
        default=ENDING,
        variable="TORCHELASTIC_SIGNALS_TO_HANDLE",
        help="signals that end the run, passed on to the ranks (default: SIGTERM,SIGINT,SIGHUP,SIGQUIT)",
    ),
    Option(
        name="shutdown-timeout",
        read=_seconds,
        metavar="SECONDS",
        variable="TORCH_ELASTIC_SHUTDOWN_TIMEOUT",
        help="from the first signal to the ranks to SIGKILL (default: 30)",
    ),
    Option(name="virtual-local-rank", help="each rank is local rank 0 and sees its own GPU only"),
    Option(name="no-color", help="no colours, not even on a terminal"),
)
"""All options: torchrun's in the order of its help, then ours."""
