"""``aioelastic``: choose the subcommand."""

import argparse
import sys
from collections.abc import Sequence


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        words: The arguments; those of the process when not given.

    Returns:
        The exit status.
    """
    words = sys.argv[1:] if words is None else words
    if words and words[0] == "run":
        # It has a parser of its own, which leaves alone what follows the script; and each start pays for its imports.
        from aioelastic._cli import run  # noqa: PLC0415 - see above

        return run.main(words[1:])
    return _other(words)


def _other(words: Sequence[str]) -> int:
    from aioelastic._cli import numa  # noqa: PLC0415 - "run" does without

    parser = argparse.ArgumentParser(prog="aioelastic", description="Launch and supervise groups of worker processes.")
    subcommands = parser.add_subparsers(title="subcommands", required=True, metavar="COMMAND")
    subcommands.add_parser("run", help="run a script on several ranks, with torchrun's options", add_help=False)
    numa.add_to(subcommands)
    options = parser.parse_args(words)
    status: int = options.run(options)
    return status
