"""Where a group stands (a word each)."""

import enum


class GroupState(enum.Enum):
    """Where a group, or an agent that runs one attempt of it after the other, stands."""

    NEW = "not started"
    STARTING = "starting"
    RUNNING = "running"
    RESTARTING = "waiting for the next attempt"
    """An attempt of an agent has failed, and the next one begins in a moment."""
    STOPPING = "stopping"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    STOPPED = "stopped"
