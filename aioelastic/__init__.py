"""Launch and supervise a group of worker processes from inside an asyncio program.

The names below are resolved on first use: a program pays only for what it touches.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioelastic._agent.agent import LocalElasticAgent as LocalElasticAgent
    from aioelastic._agent.rendezvous import Rendezvous as Rendezvous
    from aioelastic._agent.rendezvous import WorldInfo as WorldInfo
    from aioelastic._agent.restarts import Backoff as Backoff
    from aioelastic._agent.run_result import Attempt as Attempt
    from aioelastic._agent.run_result import RunResult as RunResult
    from aioelastic._agent.standalone import StandaloneRendezvous as StandaloneRendezvous
    from aioelastic._agent.static import StaticRendezvous as StaticRendezvous
    from aioelastic._agent.worker_spec import WorkerSpec as WorkerSpec
    from aioelastic._contexts.context import PContext as PContext
    from aioelastic._contexts.multiprocess_context import MultiprocessContext as MultiprocessContext
    from aioelastic._contexts.results import RunProcsResult as RunProcsResult
    from aioelastic._contexts.signal_forwarding import ForwardedSignals as ForwardedSignals
    from aioelastic._contexts.signal_forwarding import forward_signals as forward_signals
    from aioelastic._contexts.subprocess_context import SubprocessContext as SubprocessContext
    from aioelastic._errors.child_failed import ChildFailedError as ChildFailedError
    from aioelastic._errors.error_handler import ErrorHandler as ErrorHandler
    from aioelastic._errors.error_handler import get_error_handler as get_error_handler
    from aioelastic._errors.exceptions import AioelasticError as AioelasticError
    from aioelastic._errors.exceptions import ContextStateError as ContextStateError
    from aioelastic._errors.exceptions import DescriptorLimitError as DescriptorLimitError
    from aioelastic._errors.exceptions import RanksError as RanksError
    from aioelastic._errors.exceptions import RankStartError as RankStartError
    from aioelastic._errors.exceptions import RendezvousError as RendezvousError
    from aioelastic._errors.exceptions import SpecificationError as SpecificationError
    from aioelastic._errors.exceptions import SpecificationTypeError as SpecificationTypeError
    from aioelastic._errors.exceptions import SurvivorsError as SurvivorsError
    from aioelastic._errors.process_failure import ProcessFailure as ProcessFailure
    from aioelastic._errors.recording import record as record
    from aioelastic._launch import start_processes as start_processes
    from aioelastic._logs.destinations import LogDirectoryError as LogDirectoryError
    from aioelastic._logs.destinations import LogsDest as LogsDest
    from aioelastic._logs.line_stream import LineStream as LineStream
    from aioelastic._logs.line_stream import LogLine as LogLine
    from aioelastic._logs.specs import DefaultLogsSpecs as DefaultLogsSpecs
    from aioelastic._logs.specs import LogsSpecs as LogsSpecs
    from aioelastic._logs.std import Std as Std
    from aioelastic._logs.std import to_map as to_map
    from aioelastic._numa.errors import NumaBindingError as NumaBindingError
    from aioelastic._numa.options import AffinityMode as AffinityMode
    from aioelastic._numa.options import NumaOptions as NumaOptions
    from aioelastic._processes.subprocess_handler import SubprocessHandler as SubprocessHandler
    from aioelastic._processes.subprocess_handler import get_subprocess_handler as get_subprocess_handler
    from aioelastic._supervision.events import Event as Event
    from aioelastic._supervision.events import EventKind as EventKind
    from aioelastic._supervision.events import EventStream as EventStream
    from aioelastic._supervision.exits import ExitCause as ExitCause
    from aioelastic._supervision.exits import RankExit as RankExit
    from aioelastic._supervision.states import GroupState as GroupState

    __version__: str

_HOMES = {
    "AffinityMode": "_numa.options",
    "AioelasticError": "_errors.exceptions",
    "Attempt": "_agent.run_result",
    "Backoff": "_agent.restarts",
    "ChildFailedError": "_errors.child_failed",
    "ContextStateError": "_errors.exceptions",
    "DefaultLogsSpecs": "_logs.specs",
    "DescriptorLimitError": "_errors.exceptions",
    "ErrorHandler": "_errors.error_handler",
    "Event": "_supervision.events",
    "EventKind": "_supervision.events",
    "EventStream": "_supervision.events",
    "ExitCause": "_supervision.exits",
    "ForwardedSignals": "_contexts.signal_forwarding",
    "GroupState": "_supervision.states",
    "LineStream": "_logs.line_stream",
    "LocalElasticAgent": "_agent.agent",
    "LogDirectoryError": "_logs.destinations",
    "LogLine": "_logs.line_stream",
    "LogsDest": "_logs.destinations",
    "LogsSpecs": "_logs.specs",
    "MultiprocessContext": "_contexts.multiprocess_context",
    "NumaBindingError": "_numa.errors",
    "NumaOptions": "_numa.options",
    "PContext": "_contexts.context",
    "ProcessFailure": "_errors.process_failure",
    "RankExit": "_supervision.exits",
    "RankStartError": "_errors.exceptions",
    "RanksError": "_errors.exceptions",
    "Rendezvous": "_agent.rendezvous",
    "RendezvousError": "_errors.exceptions",
    "RunProcsResult": "_contexts.results",
    "RunResult": "_agent.run_result",
    "SpecificationError": "_errors.exceptions",
    "SpecificationTypeError": "_errors.exceptions",
    "StandaloneRendezvous": "_agent.standalone",
    "StaticRendezvous": "_agent.static",
    "Std": "_logs.std",
    "SubprocessContext": "_contexts.subprocess_context",
    "SubprocessHandler": "_processes.subprocess_handler",
    "SurvivorsError": "_errors.exceptions",
    "WorkerSpec": "_agent.worker_spec",
    "WorldInfo": "_agent.rendezvous",
    "forward_signals": "_contexts.signal_forwarding",
    "get_error_handler": "_errors.error_handler",
    "get_subprocess_handler": "_processes.subprocess_handler",
    "record": "_errors.recording",
    "start_processes": "_launch",
    "to_map": "_logs.std",
}

__all__ = [
    "AffinityMode",
    "AioelasticError",
    "Attempt",
    "Backoff",
    "ChildFailedError",
    "ContextStateError",
    "DefaultLogsSpecs",
    "DescriptorLimitError",
    "ErrorHandler",
    "Event",
    "EventKind",
    "EventStream",
    "ExitCause",
    "ForwardedSignals",
    "GroupState",
    "LineStream",
    "LocalElasticAgent",
    "LogDirectoryError",
    "LogLine",
    "LogsDest",
    "LogsSpecs",
    "MultiprocessContext",
    "NumaBindingError",
    "NumaOptions",
    "PContext",
    "ProcessFailure",
    "RankExit",
    "RankStartError",
    "RanksError",
    "Rendezvous",
    "RendezvousError",
    "RunProcsResult",
    "RunResult",
    "SpecificationError",
    "SpecificationTypeError",
    "StandaloneRendezvous",
    "StaticRendezvous",
    "Std",
    "SubprocessContext",
    "SubprocessHandler",
    "SurvivorsError",
    "WorkerSpec",
    "WorldInfo",
    "forward_signals",
    "get_error_handler",
    "get_subprocess_handler",
    "record",
    "start_processes",
    "to_map",
]


def __getattr__(name: str) -> Any:
    """Import a public name's home on first use."""
    if name == "__version__":
        from importlib.metadata import version  # noqa: PLC0415 - costs 10 ms that only this name needs

        return version("aioelastic")
    if name not in _HOMES:
        raise AttributeError(f"module 'aioelastic' has no attribute {name!r}")
    value = getattr(import_module(f"aioelastic.{_HOMES[name]}"), name)
    # Tracebacks and pickles name the public home, so that moving a module never breaks a stored pickle.
    value.__module__ = "aioelastic"
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
