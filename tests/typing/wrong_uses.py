"""What a type checker must not let pass: both say so at each marked line, and complain of a mark where all is well."""

from aioelastic import (
    LocalElasticAgent,
    LogsSpecs,
    RunProcsResult,
    Std,
    WorkerSpec,
    forward_signals,
    record,
    start_processes,
)


@record
def main(steps: int) -> None:
    """Do the work of a rank."""


async def wrong() -> None:
    """Do nothing right."""
    await start_processes("job")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    await start_processes("job", 3, {0: ()})  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await start_processes("job", "true", [()])  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await start_processes("job", "true", {0: ()}, tee="3")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    await start_processes("job", "true", {0: ()}, death_sig="TERM")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    context = await start_processes("job", "true", {0: ()})
    with context:  # type: ignore[attr-defined]  # pyright: ignore[reportGeneralTypeIssues]
        pass
    print((await context.wait(1)).failures)  # type: ignore[union-attr]  # pyright: ignore[reportOptionalMemberAccess]
    context.state = None  # type: ignore[assignment, misc]  # pyright: ignore[reportAttributeAccessIssue]
    forward_signals(None)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


def wrong_values(result: RunProcsResult) -> None:
    """Change what is frozen, and make what is abstract."""
    result.failures = {}  # type: ignore[misc]  # pyright: ignore[reportAttributeAccessIssue]
    LogsSpecs()  # type: ignore[abstract]  # pyright: ignore[reportAbstractUsage]
    WorkerSpec("train.py")  # type: ignore[call-arg]  # pyright: ignore[reportCallIssue]
    LocalElasticAgent("train.py")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    main("ten")  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
    Std.from_str(3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
