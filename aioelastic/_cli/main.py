"""``aioelastic``: choose the subcommand."""

import argparse
from collections.abc import Sequence

from aioelastic._cli import numa


def main(words: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        words: The arguments; those of the process when not given.

    Returns:
        The exit status.
    """
    parser = argparse.ArgumentParser(prog="aioelastic", description="Launch and supervise groups of worker processes.")
    subcommands = parser.add_subparsers(title="subcommands", required=True, metavar="COMMAND")
    numa.add_to(subcommands)
    options = parser.parse_args(words)
    status: int = options.run(options)
    return status
