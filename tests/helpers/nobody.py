"""Programs that act as a user to whom permissions apply, which root is not."""

import subprocess

from tests.helpers.drivers import ROOT
from tests.helpers.programs import PYTHON


def said_by_nobody(imports: str, statements: str) -> str:
    """Give what statements print; what they need is imported while everything may still be read."""
    script = (
        "import os\n"
        f"{imports}\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setegid(65534); os.seteuid(65534)\n"
        f"{statements}\n"
        "os.seteuid(os.getuid())\n"  # coverage writes its file on the way out
    )
    return subprocess.run([PYTHON, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True).stdout
