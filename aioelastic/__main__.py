"""``python -m aioelastic``."""

import sys

from aioelastic._cli.main import main

if __name__ == "__main__":
    sys.exit(main())
