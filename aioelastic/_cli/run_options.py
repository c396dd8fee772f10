"""``aioelastic run``: what a person typed, and what the environment says, as `RunOptions`."""

import argparse
import signal
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from aioelastic._cli.option_table import OPTIONS, Option
from aioelastic._logs.std import Std

_BY_NAME: Final = {option.name: option for option in OPTIONS}
_BY_LETTER: Final = {option.short: option for option in OPTIONS if option.short}

_USAGE: Final = "aioelastic run [options] script [arguments of the script]"

_DESCRIPTION: Final = (
    "Run a script on several ranks, restart them together when one fails, and pass torchrun's variables to them. "
    "The options are torchrun's. What comes behind the script is the script's."
)

_EPILOG: Final = (
    "Options may be spelled with _ in place of -, and shortened as long as it is clear which one is meant. "
    "Where an option is not given, a variable PET_<OPTION> is read (PET_NPROC_PER_NODE=4; 1 for an option without a "
    "value)."
)


class RunOptions(NamedTuple):
    """The options of one call, read and checked one by one; `make_plan` says what they mean together.

    Attributes:
        script: The script, the module's name or the program.
        script_args: Its arguments, as they were typed.
        given: Which options were given: field -> the option or the variable that did, as a person would write it.
    """

    script: str
    script_args: tuple[str, ...]
    given: Mapping[str, str]
    nnodes: tuple[int, int]
    nproc_per_node: int | str
    rdzv_backend: str | None
    rdzv_endpoint: str | None
    rdzv_id: str | None
    rdzv_conf: str | None
    standalone: bool
    max_restarts: int
    monitor_interval: float | None
    start_method: str | None
    event_log_handler: str | None
    role: str
    module: bool
    no_python: bool
    run_path: bool
    log_dir: str | None
    redirects: Std | dict[int, Std]
    tee: Std | dict[int, Std]
    local_ranks_filter: frozenset[int] | None
    duplicate_stdout_filters: tuple[str, ...]
    duplicate_stderr_filters: tuple[str, ...]
    node_rank: int | None
    master_addr: str | None
    master_port: int | None
    local_addr: str | None
    logs_specs: str | None
    numa_binding: str | None
    signals_to_handle: tuple[signal.Signals, ...]
    shutdown_timeout: float | None
    virtual_local_rank: bool
    no_color: bool

    def source(self, field: str) -> str:
        """Give what a value came from, such as ``--node-rank`` or ``PET_NODE_RANK``; the option where nothing did."""
        return self.given.get(field, f"--{field.replace('_', '-')}")


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options to a parser, for its help and for the form of words; `parse` reads their values."""
    for option in OPTIONS:
        names = [f"-{option.short}"] * bool(option.short) + [f"--{option.name}"]
        # "%" has a meaning in argparse's help, and none of ours has one.
        if option.read is None:
            parser.add_argument(*names, dest=option.field, action="store_const", const="1", help=option.help)
        else:
            parser.add_argument(*names, dest=option.field, metavar=option.metavar, help=option.help)


def parse(words: Sequence[str], environ: Mapping[str, str]) -> RunOptions:
    """Read the words behind ``aioelastic run``, and the environment for what they do not say.

    Nothing behind the script is looked at. `argparse` would: it searches all words for options, ours among the
    script's, and takes a ``--`` away. So it is given only the words before the script.

    Args:
        words: The words.
        environ: The variables.

    Returns:
        The options.

    Raises:
        SystemExit: With status 2 after a line on stderr that says what is wrong, and where it came from; with 0 after
            the help.

    Example:
        >>> options = parse(["--nproc_per", "4", "train.py", "--tee", "--", "x"], {"PET_MAX_RESTARTS": "3"})
        >>> options.nproc_per_node, options.max_restarts, options.script_args
        (4, 3, ('--tee', '--', 'x'))
    """
    parser = argparse.ArgumentParser("aioelastic run", usage=_USAGE, description=_DESCRIPTION, epilog=_EPILOG)
    add_options(parser)
    ours, theirs = _split(words)
    typed, unknown = parser.parse_known_args(ours)
    if unknown:
        parser.error(_unknown(unknown[0]))
    values: dict[str, object] = {}
    given: dict[str, str] = {}
    for option in OPTIONS:
        values[option.field] = option.default if option.read else False
        text, source = _text_of(option, getattr(typed, option.field), environ)
        if text is not None:
            given[option.field] = source
            try:
                values[option.field] = option.value(text)
            except ValueError as error:
                parser.error(f"{source}: {error}")
    if not theirs or not theirs[0]:
        parser.error(f"the {'module' if values['module'] else 'script'} to run is missing: {_USAGE}")
    return RunOptions(script=theirs[0], script_args=tuple(theirs[1:]), given=given, **values)  # type: ignore[arg-type]


def _text_of(option: Option, typed: str | None, environ: Mapping[str, str]) -> tuple[str | None, str]:
    """Give an option's text and what said it: the command line, else the first of its variables that is set."""
    if typed is not None:
        return typed, f"--{option.name}"
    for variable in option.variables:
        if variable in environ:
            return environ[variable], variable
    return None, ""


def _split(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Divide the words into our options, with ``-`` in their names, and the script with its arguments.

    At a word that is no option of ours, or that may be several, the division ends: what follows may be its value, and
    the parser will refuse the word anyway.
    """
    ours: list[str] = []
    rest = list(words)
    while rest:
        word = rest[0]
        if word == "--":
            return ours, rest[1:]
        if word == "-" or not word.startswith("-"):
            return ours, rest
        length = _length(word)
        name, equals, value = word.partition("=")
        ours += [name.replace("_", "-") + equals + value, *rest[1:length]]
        if not length:
            break
        del rest[:length]
    return ours, []


def _length(word: str) -> int:
    """Give how many words an option takes, itself included; 0 if it is not known or not clear which one it is."""
    if not word.startswith("--"):
        return _length_of_letters(word[1:])
    name, equals, _ = word[2:].replace("_", "-").partition("=")
    found = [name] if name in _BY_NAME else [each for each in [*_BY_NAME, "help"] if each.startswith(name)]
    if len(found) != 1:
        return 0
    takes_value = found[0] in _BY_NAME and _BY_NAME[found[0]].read is not None
    return 2 if takes_value and not equals else 1


def _length_of_letters(letters: str) -> int:
    for place, letter in enumerate(letters, 1):
        if letter == "h":
            return 1
        if letter not in _BY_LETTER:
            return 0
        if _BY_LETTER[letter].read is not None:
            # What follows the letter in the same word is its value.
            return 1 if place < len(letters) else 2
    return 1


def _unknown(word: str) -> str:
    from difflib import get_close_matches  # noqa: PLC0415 - takes time that only an error is worth

    name = word.partition("=")[0]
    close = get_close_matches(name.removeprefix("--"), _BY_NAME, 1) if name.startswith("--") else []
    hint = f"did you mean --{close[0]}? Options" if close else "options"
    return f"there is no option {name}: {hint} of the script come behind it (aioelastic run --help shows ours)"
