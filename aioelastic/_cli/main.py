"""``aioelastic``: choose the subcommand."""

import argparse
import gc
import signal
import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        words: The arguments; those of the process when not given.

    Returns:
        The exit status.
    """
    is_program = words is None
    if words is None:
        words = sys.argv[1:]
        _end_by_interrupts()
    if words and words[0] == "run":
        return _run(words[1:])
    if is_program:
        # What only prints ends with its reader (head, less), as any program; a run goes on without one.
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    return _other(words)


def _run(words: Sequence[str]) -> int:
    """Run ``aioelastic run``, which has a parser of its own: that leaves alone what follows the script."""
    # All that is imported stays. Looking through it again and again takes the collector a fifth of the start.
    collects = gc.isenabled()
    gc.disable()
    from aioelastic._cli import run  # noqa: PLC0415 - for this command only

    gc.freeze()
    if collects:
        gc.enable()
    return run.main(words)


def _end_by_interrupts() -> None:
    """Let ^C end this process as any other, until somebody handles it: a traceback of ours would tell a person nothing.

    Where it is ignored (``nohup``, a job in the background) it stays ignored.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class _ShowVersion(argparse.Action):
    """Prints the version: found only when asked for, as that takes a while."""

    def __call__(self, parser: argparse.ArgumentParser, *_: object) -> None:
        from importlib.metadata import version  # noqa: PLC0415 - see above

        sys.stdout.write(f"aioelastic {version('aioelastic')}\n")
        parser.exit()


def _other(words: Sequence[str]) -> int:
    from aioelastic._cli import numa  # noqa: PLC0415 - "run" does without

    parser = argparse.ArgumentParser(prog="aioelastic", description="Launch and supervise groups of worker processes.")
    parser.add_argument("--version", action=_ShowVersion, nargs=0, help="show the version and exit")
    subcommands = parser.add_subparsers(title="subcommands", required=True, metavar="COMMAND")
    subcommands.add_parser("run", help="run a script on several ranks, with torchrun's options", add_help=False)
    numa.add_to(subcommands)
    options = parser.parse_args(words)
    status: int = options.run(options)
    return status
