"""The figures: each module measures some, and `measuring` runs them."""

from typing import Final

NAMES: Final = ("throughput", "latency")
"""All modules, in the order of their tables."""
