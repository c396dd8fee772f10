"""What passes between supervisor and ranks by pickle, what does not, and what is said of it."""

import json
import multiprocessing
import socket
import threading
import time
from collections.abc import Callable
from multiprocessing.shared_memory import SharedMemory
from pathlib import Path
from typing import Any, Final

import pytest

from aioelastic import ProcessFailure, SpecificationError, start_processes
from tests.helpers import function_endings, functions
from tests.helpers.drivers import LOOPS, run_driver
from tests.helpers.function_groups import FORK_WARNING, METHODS, run_functions
from tests.helpers.waiting import until

pytestmark = [pytest.mark.filterwarnings(FORK_WARNING), pytest.mark.one_method, pytest.mark.half]

PICKLING: Final = ("spawn", "forkserver")
"""The methods whose ranks get their function and arguments by pickle."""

BOUND: Final = 20.0
"""Seconds in which a failure must be there, on a busy machine too; nothing here waits for anything."""

WITHOUT_CLOUDPICKLE = """
sys.modules["cloudpickle"] = None
import psutil

def in_main(number):
    return number

async def main():
    local = lambda number: number
    for function in (local, in_main):
        try:
            await start_processes("job", function, {0: (1,), 1: (2,)}, start_method=sys.argv[2])
        except SpecificationError as error:
            print(error)
    others = [each.cmdline() for each in psutil.Process().children(recursive=True)]
    print([words for words in others if "resource_tracker" not in " ".join(words)])
    numbers = lambda lock: [number for number in range(3) if lock.acquire(blocking=False)]
    async with start_processes("job", numbers, {0: (threading.Lock(),)}, start_method="fork") as context:
        print((await context.wait()).return_values)

import threading
run(main)
"""
"""Starts functions that do not pickle, then a fork of one."""

RAISES_HERE = """
import builtins
from tests.helpers import functions

async def main():
    kinds = [getattr(builtins, name, None) or getattr(functions, name) for name in sys.argv[2:]]
    for kind in kinds:
        call = functions.ExitsElsewhere, kind
        async with start_processes("job", functions.give_made, {0: call}, log_dir=os.devnull) as context:
            print(json.dumps((await context.wait()).failures[0].message))

run(main)
"""
"""Says why a rank failed whose value can be unpickled anywhere else, for each type that unpickling raises here."""

RAISED_HERE: Final = ("SystemExit", "KeyboardInterrupt", "GeneratorExit", "RuntimeError", "Mute")


@pytest.fixture(autouse=True, scope="module")
def shared_heap() -> None:
    """Make the memory for small shared objects, which `multiprocessing` keeps for the life of the program."""
    multiprocessing.get_context("spawn").Value("i")


async def failure_of(
    folder: Path, method: str, function: Callable[..., Any], *args: Any, devnull: bool = False
) -> ProcessFailure:
    """Run one rank to its failure, next to one that succeeds."""
    began = time.monotonic()
    result = await run_functions(method, function, args, log_dir="/dev/null" if devnull else folder / "logs")

    assert time.monotonic() - began < BOUND
    assert result.return_values == {}
    assert list(result.failures) == [0]
    return result.failures[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("devnull", [False, True])
@pytest.mark.parametrize(
    ("maker", "args", "said"),
    [
        (functions.Unpicklable, (), "a Unpicklable that cannot be pickled (RuntimeError: not me)"),
        (functions.Unpicklable, (functions.Mute,), "a Unpicklable that cannot be pickled (Mute"),
        (functions.give_generator, (), "a generator that cannot be pickled (TypeError: "),
        (functions.give_deep, (100_000,), "a list that cannot be pickled (RecursionError: "),
        (threading.Lock, (), "a lock that cannot be pickled (TypeError: "),
        (functions.Unopenable, (), "a Unopenable that pickles but does not unpickle (LookupError: no way back)"),
        (functions.NeedsTwo, ("a", "b"), "a NeedsTwo that pickles but does not unpickle (TypeError: "),
    ],
    ids=["reduce raises", "no text", "generator", "deep", "lock", "setstate raises", "cpython#103061"],
)
async def test_a_value_that_does_not_pass_fails_its_rank(
    tmp_path: Path, method: str, maker: Callable[..., Any], args: tuple[object, ...], said: str, *, devnull: bool
) -> None:
    """Whether it does not pickle or does not unpickle, the failure says so at once, with what was raised."""
    failure = await failure_of(tmp_path, method, functions.give_made, maker, *args, devnull=devnull)

    assert failure.exitcode == 1
    assert failure.message.startswith(f"TypeError: the function returned {said}")
    assert "The above exception was the direct cause" in failure.traceback


@pytest.mark.parametrize("method", METHODS)
async def test_a_value_that_ends_the_process_ends_its_ranks(tmp_path: Path, method: str) -> None:
    """Unpickling is tried in the rank: that ends with the value's code, and the supervisor lives."""
    failure = await failure_of(tmp_path, method, functions.give_made, functions.EndsProcess, 7)
    assert failure.exitcode == 7


@pytest.mark.parametrize("method", METHODS)
async def test_a_value_that_ends_the_process_well_is_no_value(tmp_path: Path, method: str) -> None:
    """An end with 0 while unpickling is tried is no success."""
    failure = await failure_of(tmp_path, method, functions.give_made, functions.EndsProcess, 0)

    assert failure.exitcode == 0
    assert failure.message.startswith("It ended with exit code 0 but returned no value")


@pytest.mark.parametrize("loop", LOOPS)
def test_a_value_that_raises_in_the_supervisor_fails_its_rank(loop: str) -> None:
    """Whatever unpickling raises, and there only, the supervisor goes on and says of which type it was."""
    said = [json.loads(line) for line in run_driver(RAISES_HERE, loop, *RAISED_HERE).splitlines()]

    assert len(said) == len(RAISED_HERE)
    for kind, text in zip(RAISED_HERE, said, strict=True):
        assert text.startswith(f"Its value does not unpickle here ({kind}")


@pytest.mark.parametrize("method", METHODS)
async def test_a_value_of_a_class_that_is_not_here_fails_its_rank(tmp_path: Path, method: str) -> None:
    """When only the rank can import the value's module, the failure says that it does not unpickle here, and why."""
    (tmp_path / "only_here.py").write_text("class Local:\n    pass\n")
    failure = await failure_of(tmp_path, method, functions.give_of_module, str(tmp_path))

    assert failure.exitcode == 0
    assert failure.message.startswith(
        "Its value does not unpickle here (ModuleNotFoundError: No module named 'only_here')."
    )


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("devnull", [False, True])
@pytest.mark.parametrize(
    ("kind", "args", "said"),
    [
        (functions.NeedsTwo, ("a", "b"), "NeedsTwo: a and b"),
        (functions.Unreducible, ("a",), "Unreducible: a"),
        (functions.Deadly, ("a",), "Deadly: a"),
        (functions.Mute, (), "Mute"),
    ],
)
async def test_an_exception_need_not_pickle(
    tmp_path: Path, method: str, kind: type[Exception], args: tuple[str, ...], said: str, *, devnull: bool
) -> None:
    """Exceptions that cannot be pickled, unpickled or printed fail their rank with type, text and traceback."""
    failure = await failure_of(tmp_path, method, function_endings.fail_with, kind, *args, devnull=devnull)

    assert failure.exitcode == 1
    assert said in failure.message
    assert "in fail_with\n" in failure.traceback


@pytest.mark.parametrize("method", PICKLING)
async def test_an_argument_that_does_not_pickle_is_refused(method: str) -> None:
    """One error, before anything starts, names the rank, the function, what was raised and the remedy."""
    args = {0: (1,), 1: (functions.Unpicklable(),)}
    with pytest.raises(SpecificationError) as caught:
        await start_processes("job", functions.give, args, start_method=method)

    assert str(caught.value).startswith(
        "rank 1 cannot be given its call of tests.helpers.functions.give(): it does not pickle (RuntimeError: not me)"
    )
    assert "start_method='fork'" in str(caught.value)


@pytest.mark.parametrize("method", PICKLING)
@pytest.mark.parametrize(
    "argument",
    [threading.Lock(), functions.give_generator(), functions.give_deep(100_000), functions.Unpicklable(functions.Mute)],
    ids=["lock", "generator", "deep", "no text"],
)
async def test_whatever_is_raised_while_pickling_is_one_kind_of_error(method: str, argument: object) -> None:
    """``TypeError``, ``RecursionError`` or any other is a ``SpecificationError`` to the caller."""
    with pytest.raises(SpecificationError, match=r"rank 0 cannot be given its call of .*it does not pickle"):
        await start_processes("job", functions.give, {0: (argument,)}, start_method=method)


async def test_a_fork_pickles_no_argument(tmp_path: Path) -> None:
    """Locks, generators, closures and what raises when pickled are simply there."""
    offset = 3

    def use(lock: Any, numbers: Any, bad: object) -> tuple[int, bool]:
        with lock:
            return offset + next(numbers), isinstance(bad, functions.Unpicklable)

    args = (threading.Lock(), functions.give_generator(), functions.Unpicklable())
    result = await run_functions("fork", use, args)
    assert result.return_values == {0: (4, True)}


@pytest.mark.parametrize("method", PICKLING)
async def test_an_argument_that_does_not_unpickle_fails_its_rank(tmp_path: Path, method: str) -> None:
    """What unpickling raises in the rank is recorded like an exception of the function."""
    failure = await failure_of(tmp_path, method, functions.give, functions.Unopenable())

    assert failure.message == "LookupError: no way back"
    assert "__setstate__" in failure.traceback


@pytest.mark.parametrize("method", PICKLING)
@pytest.mark.parametrize("code", [0, 7])
async def test_an_argument_that_ends_the_process_fails_its_rank(tmp_path: Path, method: str, code: int) -> None:
    """The rank has the code that unpickling ended it with."""
    failure = await failure_of(tmp_path, method, functions.give, functions.EndsProcess(code))
    assert failure.exitcode == code


@pytest.mark.parametrize("method", METHODS)
async def test_lambdas_and_closures_are_functions_too(tmp_path: Path, method: str) -> None:
    """With cloudpickle, what is defined on the spot runs in a rank with all that it refers to."""
    seen = {"local": 3}

    def local(number: int) -> Any:
        class Inner:
            value = number + seen["local"]

        return Inner.value

    results = [await run_functions(method, each, (4,), (5,)) for each in (local, lambda number: number + len(seen))]
    assert [each.return_values for each in results] == [{0: 7, 1: 8}, {0: 5, 1: 6}]


@pytest.mark.parametrize("method", METHODS)
async def test_a_lambda_is_an_argument_and_a_value(tmp_path: Path, method: str) -> None:
    """With cloudpickle, functions made on the spot travel both ways."""
    given = await run_functions(method, functions.give_made, (lambda number: number * 2, 21))
    returned = await run_functions(method, functions.give_lambda, ())

    assert given.return_values == {0: 42}
    assert returned.return_values[0](4) == 7


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("method", PICKLING)
def test_without_cloudpickle_they_are_refused_with_a_remedy(loop: str, method: str) -> None:
    """One error before any process exists names function, rank and remedy; a fork needs no pickle."""
    of_lambda, of_main, others, forked = run_driver(WITHOUT_CLOUDPICKLE, loop, method).splitlines()

    assert of_lambda.startswith("rank 0 cannot be given its call of __main__.main.<locals>.<lambda>(): ")
    assert of_main.startswith("rank 0 cannot be given its call of __main__.in_main(): the program's main module cannot")
    for said in (of_lambda, of_main):
        assert "install cloudpickle" in said
        assert "start_method='fork'" in said
    assert others == "[]"
    assert forked == "{0: [0]}"


@pytest.mark.parametrize("method", METHODS)
async def test_a_queue_is_an_argument(tmp_path: Path, method: str) -> None:
    """What a rank puts last is there although the rank has returned: it waits for the queue's thread."""
    queue: Any = multiprocessing.get_context(method).Queue()
    big = b"x" * 10**6
    async with start_processes("job", functions.use_queue, {0: (queue, big)}, start_method=method) as context:
        await until(lambda: not queue.empty())
        assert queue.get(timeout=BOUND) == big
        result = await context.wait(timeout=BOUND)
    queue._reader.close()
    queue._writer.close()

    assert result is not None
    assert result.return_values == {0: None}


@pytest.mark.parametrize("method", METHODS)
async def test_events_pass_between_supervisor_and_rank(tmp_path: Path, method: str) -> None:
    """Both sides see what the other sets."""
    asked, answered = (multiprocessing.get_context(method).Event() for _ in range(2))
    async with start_processes("job", functions.use_event, {0: (asked, answered)}, start_method=method) as context:
        asked.set()
        result = await context.wait(timeout=BOUND)

    assert result is not None
    assert result.return_values == {0: True}
    assert answered.is_set()


@pytest.mark.parametrize("method", METHODS)
async def test_a_lock_is_shared_by_ranks(tmp_path: Path, method: str) -> None:
    """Two ranks count in the same file under the same lock, and lose nothing."""
    lock, number = multiprocessing.get_context(method).Lock(), tmp_path / "number"
    number.write_text("0")
    await run_functions(method, functions.use_lock, (lock, number), (lock, number))
    assert number.read_text() == "200"


@pytest.mark.parametrize("method", METHODS)
async def test_ranks_meet_at_a_barrier(tmp_path: Path, method: str) -> None:
    """All ranks run at the same time."""
    barrier = multiprocessing.get_context(method).Barrier(3)
    result = await run_functions(method, functions.use_barrier, *[(barrier,)] * 3)
    assert sorted(result.return_values.values()) == [0, 1, 2]


@pytest.mark.parametrize("method", METHODS)
async def test_connections_are_arguments(tmp_path: Path, method: str) -> None:
    """Each rank talks to the supervisor by its own connection."""
    pairs = [multiprocessing.get_context(method).Pipe() for _ in range(2)]
    args = {rank: (theirs,) for rank, (_, theirs) in enumerate(pairs)}
    async with start_processes("job", functions.use_connection, args, start_method=method) as context:
        for rank, (ours, _) in enumerate(pairs):
            ours.send(f"rank {rank}")
            await until(ours.poll)
            assert ours.recv() == f"RANK {rank}"
        result = await context.wait(timeout=BOUND)
    for pair in pairs:
        for connection in pair:
            connection.close()

    assert result is not None
    assert result.return_values == {0: "rank 0", 1: "rank 1"}


@pytest.mark.parametrize("method", METHODS)
async def test_sockets_are_arguments(tmp_path: Path, method: str) -> None:
    """A listening socket of the supervisor's can be given to a rank."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = await run_functions(method, functions.name_of_socket, (server,))
        assert result.return_values == {0: server.getsockname()}


@pytest.mark.parametrize("method", METHODS)
async def test_shared_memory_is_an_argument(tmp_path: Path, method: str) -> None:
    """A rank writes into the supervisor's memory, which outlives the rank."""
    memory = SharedMemory(create=True, size=100)
    try:
        await run_functions(method, functions.use_memory, (memory,))
        assert bytes(memory.buf or b"")[0] == 1
    finally:
        memory.close()
        memory.unlink()


@pytest.mark.parametrize("method", PICKLING)
async def test_a_lock_of_another_start_method_is_refused(method: str) -> None:
    """``multiprocessing`` says that it belongs to a fork, and the error has its words."""
    with pytest.raises(SpecificationError, match="SemLock created in a fork context"):
        await start_processes(
            "job", functions.give, {0: (multiprocessing.get_context("fork").Lock(),)}, start_method=method
        )
