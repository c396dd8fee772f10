"""The process in which one case is measured: ``python -m measuring.child MODULE CASE FOLDER RESULT``."""

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, cast

from measuring.plan import Case

if TYPE_CHECKING:
    from measuring.plan import FigureModule


def main() -> None:
    """Measure, and leave the numbers in a file: stdout belongs to what is measured."""
    module, case, folder, result = sys.argv[1:]
    measured = cast("FigureModule", import_module(f"figures.{module}")).measure(Case(**json.loads(case)), Path(folder))
    Path(result).write_text(json.dumps(dict(measured)))


if __name__ == "__main__":
    main()
