"""The figures: each module measures some, and `measuring` runs them."""

from typing import Final

NAMES: Final = ("throughput", "latency", "writes", "start", "exits", "idle", "scale", "functions", "imports")
"""All modules, in the order of their tables."""
