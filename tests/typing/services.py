"""Services: the agent that runs a group again."""

import signal
from datetime import UTC, datetime
from typing import Any, assert_type

from aioelastic import (
    Attempt,
    Backoff,
    DefaultLogsSpecs,
    GroupState,
    LocalElasticAgent,
    ProcessFailure,
    Rendezvous,
    RunResult,
    StandaloneRendezvous,
    StaticRendezvous,
    Std,
    WorkerSpec,
    WorldInfo,
    forward_signals,
)


class OwnRendezvous:
    """A rendezvous of the user's own."""

    async def next_round(self) -> WorldInfo:
        """Agree with nobody."""
        return WorldInfo(
            group_rank=0,
            group_world_size=1,
            base_rank=0,
            world_size=2,
            master_addr="localhost",
            master_port=1,
            run_id=datetime.now(UTC).isoformat(),
        )


RENDEZVOUS: list[Rendezvous] = [
    OwnRendezvous(),
    StandaloneRendezvous(2, master_port=29500),
    StaticRendezvous(2, nnodes=2, node_rank=0, master_addr="node0"),
]


def work(rank: int) -> list[int]:
    """Do the work of a rank."""
    return [rank]


async def supervise() -> None:
    """Run a service whose ranks are started again."""
    spec = WorkerSpec(
        entrypoint=work,
        args=(1,),
        role="trainer",
        local_world_size=2,
        envs={"OMP_NUM_THREADS": 4},
        max_restarts=5,
        backoff=Backoff(first=0.1, cap=5),
        healthy_after=60,
        rendezvous=RENDEZVOUS[0],
        logs_specs=DefaultLogsSpecs(log_dir="logs", tee=Std.ERR),
        duplicate_stderr_filters=["error"],
    )
    async with LocalElasticAgent(spec) as agent, forward_signals(agent):
        assert_type(agent, LocalElasticAgent)
        result = await agent.run()
        await agent.close(signal.SIGTERM, timeout=1)
    assert_type(result, RunResult)
    assert_type((result.state, agent.state), tuple[GroupState, GroupState])
    assert_type(result.return_values, dict[int, Any])
    assert_type(result.root_failure(), ProcessFailure | None)
    assert_type(result.attempts, tuple[Attempt, ...])
    assert_type(result.attempts[0].world, WorldInfo)
    assert_type(spec.backoff.delay(3), float)
