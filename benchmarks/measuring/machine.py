"""Where it was measured."""

import os
import platform
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path


def machine(rounds: int) -> dict[str, str]:
    """Name what the numbers depend on."""
    found = {
        "Python": platform.python_version(),
        "cores": str(len(os.sched_getaffinity(0))),
        "processor": _processor(),
        "kernel": platform.release(),
        "rounds": str(rounds),
    }
    for package in ("aioelastic", "torch"):
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            continue
    if commit := _commit():
        found["commit"] = commit
    return found


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.machine()


def _commit() -> str:
    """Name the commit that the sources are of, if they are in a clone."""
    command = ("git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty")
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return ""
