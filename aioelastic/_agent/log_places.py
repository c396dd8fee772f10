"""Where a run's logs are, from what its groups say of theirs."""
# ruff: noqa: PTH118, PTH120 - the paths are text, as they were given

import os
from typing import Final

from aioelastic._contexts.context import PContext
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs

EVENT_FILE: Final = "events.jsonl"


def attempt_directory(logs_specs: LogsSpecs, context: PContext) -> str:
    """Give the directory that holds the logs of a group, ``""`` where there is none.

    Args:
        logs_specs: What the group was started with.
        context: The group, started.
    """
    paths = [path for paths in (context.stdouts, context.stderrs) for path in paths.values() if path]
    if not isinstance(logs_specs, DefaultLogsSpecs):
        return logs_specs.root_log_dir or "" if paths else ""
    return next((os.path.dirname(os.path.dirname(path)) for path in paths if path != os.devnull), "")


def event_file_path(logs_specs: LogsSpecs, context: PContext) -> str:
    """Give the path of a run's ``events.jsonl``, ``""`` for none.

    It is in the directory that has those of the attempts. A run that keeps no logs, and was given no directory for
    them, keeps no events either: they would be all that is left in a temporary directory.

    Args:
        logs_specs: What the run's groups were started with.
        context: The first of them, started.
    """
    root = logs_specs.root_log_dir
    if root is None or root == os.devnull:
        return ""
    if not isinstance(logs_specs, DefaultLogsSpecs):
        return os.path.join(root, EVENT_FILE)
    if logs_specs.log_dir is None and not attempt_directory(logs_specs, context):
        return ""
    rank_directory = os.path.dirname(next(iter(context.error_files.values())))
    return os.path.join(os.path.dirname(os.path.dirname(rank_directory)), EVENT_FILE)
