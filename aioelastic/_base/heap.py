"""What the C library does with memory that is freed."""

import functools
from typing import Final

_LARGEST: Final = 4 * 1024 * 1024
"""Bytes of the block to learn from; twice as many may stay in the heap when they are free."""


@functools.cache
def keep_freed_buffers() -> None:
    """Have glibc keep what large buffers leave, for the next ones.

    By default it gives the heap's end back to the system as soon as that is 128 KiB. Buffers of the pump's size, made
    and dropped thousands of times a second, would all be of fresh memory, which the kernel clears page by page.
    glibc learns from the largest block that was ever freed (mallopt(3), M_MMAP_THRESHOLD), so this frees one; it is
    never touched, and other C libraries do not care.
    """
    bytes(_LARGEST)
