"""What the C library does with memory that is freed."""

import platform
import resource
import subprocess

import pytest

from tests.helpers.drivers import ROOT
from tests.helpers.programs import PYTHON

BUFFERS = """
import resource
from aioelastic._base.heap import keep_freed_buffers

def use():
    held = [b"x" * (256 * 1024) for _ in range(8)]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        use()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

use()
by_default = faults()
keep_freed_buffers()
use()
print(by_default, faults())
"""
"""Makes and drops buffers, and counts the pages that the kernel has to give and to clear for them."""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries have ways of their own")
def test_large_buffers_are_made_of_what_others_have_left() -> None:
    """Buffers of the pump's size need fresh memory each time by default, and hardly any once it was asked for that."""
    done = subprocess.run([PYTHON, "-c", BUFFERS], cwd=ROOT, capture_output=True, text=True, check=True)
    by_default, kept = map(int, done.stdout.split())
    pages = 20 * 8 * 256 * 1024 // resource.getpagesize()

    assert by_default > pages / 2
    assert kept < pages / 20
