"""What ranks tell of the CPUs they may use; imported by ranks."""

import os
import threading

ON_IMPORT = sorted(os.sched_getaffinity(0))
"""What was so before anything of this module ran."""


def where() -> tuple[list[int], list[int], list[int]]:
    """Tell the CPUs on import, of the function, and of a thread of its own."""
    of_thread: list[int] = []
    thread = threading.Thread(target=lambda: of_thread.extend(os.sched_getaffinity(0)))
    thread.start()
    thread.join()
    return ON_IMPORT, sorted(os.sched_getaffinity(0)), sorted(of_thread)
