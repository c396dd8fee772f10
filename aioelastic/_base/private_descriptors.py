"""Descriptors of the supervisor that a fork of it must not keep open.

A close-on-exec descriptor is closed by exec, but a forked process that goes on running Python has copies of all: of the
writing ends of other ranks' pipes, which then do not end with their ranks, and of the reading ends, without which a
rank would notice that nobody reads any more.
"""

import os

_private: set[int] = set()


def keep_private(descriptor: int) -> int:
    """Have a descriptor closed in every forked child, until `close_private` or `share` is called; give it back."""
    _private.add(descriptor)
    return descriptor


def share(descriptor: int) -> None:
    """Let forked children keep a descriptor."""
    _private.discard(descriptor)


def close_private(descriptor: int) -> None:
    """Close a descriptor; a number that was closed belongs to nobody, or to somebody else."""
    _private.discard(descriptor)
    os.close(descriptor)


def _close_copies() -> None:
    while _private:
        try:  # noqa: SIM105 - between fork and whatever the child does, as little as possible is done
            os.close(_private.pop())
        except OSError:
            pass


os.register_at_fork(after_in_child=_close_copies)
