"""Measures everything, side by side: ``python -m benchmarks --help``."""

import sys
from pathlib import Path

# The figures, as the soak, are found beside this file, also by the processes in which they are measured.
sys.path.insert(0, str(Path(__file__).parent))

from measuring.command import main

sys.exit(main())
