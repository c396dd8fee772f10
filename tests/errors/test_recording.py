"""The decorator of a rank's main function, in real ranks."""

import asyncio
import functools
import json
import pickle
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from aioelastic._errors.child_failed import ChildFailedError
from aioelastic._errors.error_handler import ErrorHandler
from aioelastic._errors.process_failure import ProcessFailure
from aioelastic._errors.recording import record

if TYPE_CHECKING:
    import subprocess

HEADER = "import os, resource, signal, sys\nfrom aioelastic._errors.recording import record\n"


class Notebook(ErrorHandler):
    """A handler that remembers what it was told."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def initialize(self) -> None:
        """Remember the call."""
        self.told.append("initialize")

    def record_exception(self, e: BaseException) -> None:
        """Remember the exception."""
        self.told.append(e)

    def dump_error_file(self, rootcause_error_file: str, error_code: int = 0) -> bool:
        """Remember the file."""
        self.told.append((rootcause_error_file, error_code))
        return True


class Broken(ErrorHandler):
    """A handler with faults of its own."""

    def initialize(self) -> None:
        """Fail."""
        raise RuntimeError("broken handler")

    def record_exception(self, e: BaseException) -> None:
        """Fail."""
        raise RuntimeError("broken handler") from e


def failure_of(done: "subprocess.CompletedProcess[str]", error_path: Path) -> ProcessFailure:
    """Give what the rank's supervisor makes of its end."""
    return ProcessFailure(0, 123, done.returncode, str(error_path))


def test_an_exception_of_a_plain_function_is_recorded(run_rank: Any, error_path: Path) -> None:
    """The rank dies of its exception as always, and its supervisor reads why."""
    done = run_rank(HEADER + "@record\ndef main():\n    raise ValueError('x')\nmain()")
    failure = failure_of(done, error_path)

    assert done.returncode == 1
    assert "ValueError: x" in done.stderr
    assert failure.message == "ValueError: x"
    # It begins with the rank's own code.
    assert failure.traceback.splitlines()[1].endswith("in main")


def test_an_exception_of_an_async_function_is_recorded(run_rank: Any, error_path: Path) -> None:
    """The same holds for ``async def``."""
    done = run_rank(
        HEADER + "import asyncio\n@record\nasync def main():\n    await asyncio.sleep(0)\n    raise ValueError('x')\n"
        "asyncio.run(main())"
    )

    assert done.returncode == 1
    assert failure_of(done, error_path).message == "ValueError: x"


def test_a_rank_killed_while_writing_leaves_no_torn_file(run_rank: Any, error_path: Path) -> None:
    """The kernel kills the rank after its first 1000 bytes: no error file, and the signal is told."""
    done = run_rank(
        HEADER + "resource.setrlimit(resource.RLIMIT_CORE, (0, 0))\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))\n"
        "signal.signal(signal.SIGXFSZ, signal.SIG_DFL)\n"
        "@record\ndef main():\n    raise ValueError('x' * 100_000)\nmain()"
    )

    assert not error_path.exists()
    assert failure_of(done, error_path).message == "Signal 25 (SIGXFSZ) received by PID 123"


def test_a_full_disk_does_not_mask_the_exception(run_rank: Any, error_path: Path) -> None:
    """The file cannot grow: the program ends by its own exception, a warning tells, nothing is left."""
    done = run_rank(
        HEADER + "@record\ndef main():\n    raise ValueError('x' * 100_000)\n"
        "soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (1000, hard))\n"
        "try:\n    main()\nfinally:\n    resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))"
    )

    assert done.returncode == 1
    assert "could not record ValueError" in done.stderr
    assert done.stderr.rstrip().endswith("x" * 1000)
    assert list(error_path.parent.iterdir()) == []


def test_a_grandchild_with_the_same_environment_comes_second(run_rank: Any, error_path: Path) -> None:
    """What a grandchild raises after the rank's own exception does not take its place."""
    grandchild = HEADER + "@record\ndef main():\n    raise KeyError('grandchild')\nmain()"
    done = run_rank(
        HEADER + "import subprocess\n@record\ndef main():\n    raise ValueError('rank')\n"
        "try:\n    main()\n"
        f"finally:\n    subprocess.run([sys.executable, '-c', {grandchild!r}])\n"
    )

    assert "KeyError: 'grandchild'" in done.stderr
    assert failure_of(done, error_path).message == "ValueError: rank"


def test_an_exception_whose_text_fails_is_recorded(run_rank: Any, error_path: Path) -> None:
    """A broken ``__str__`` hides neither the type nor the place."""
    done = run_rank(
        HEADER + "class Odd(Exception):\n    def __str__(self):\n        raise RuntimeError\n"
        "@record\ndef main():\n    raise Odd\nmain()"
    )

    assert failure_of(done, error_path).message == "Odd: <its str() failed with RuntimeError>"


def test_a_message_of_20_megabytes_is_cut(run_rank: Any, error_path: Path) -> None:
    """The file stays small, and head and tail of the message are there."""
    done = run_rank(
        HEADER + "sys.stderr = open(os.devnull, 'w')\n"
        "@record\ndef main():\n    raise ValueError('head' + 'x' * 20_000_000 + 'tail')\nmain()"
    )
    message = failure_of(done, error_path).message

    assert error_path.stat().st_size < 4_000_000
    assert message.startswith("ValueError: headxxx")
    assert message.endswith("xxxtail")


@pytest.mark.parametrize(("argument", "code"), [("0", 0), ("None", 0), ("", 0), ("3", 3), ("'no'", 1)])
def test_only_exit_code_zero_is_a_success(run_rank: Any, error_path: Path, argument: str, code: int) -> None:
    """``sys.exit(0)`` returns ``None``, any other exit goes on, and neither is recorded."""
    done = run_rank(HEADER + f"@record\ndef main():\n    sys.exit({argument})\nprint(main())")

    assert code == done.returncode
    assert ("None\n" if code == 0 else "") == done.stdout
    assert not error_path.exists()


async def test_exit_code_zero_of_a_coroutine_is_a_success() -> None:
    """In ``async def`` too ``sys.exit(0)`` returns ``None``."""

    @record
    async def main() -> int:
        sys.exit(0)

    assert await main() is None


def test_an_interrupt_is_recorded(run_rank: Any, error_path: Path) -> None:
    """SIGINT that nobody handles is why the rank ended."""
    done = run_rank(HEADER + "@record\ndef main():\n    signal.raise_signal(signal.SIGINT)\nmain()")

    assert done.returncode == -2
    assert failure_of(done, error_path).message == "KeyboardInterrupt"


def test_a_failure_of_an_inner_group_is_passed_upward(run_rank: Any, error_path: Path, tmp_path: Path) -> None:
    """The outer supervisor reads what the inner rank raised, with its exit code."""
    inner = tmp_path / "inner.json"
    inner.write_text('{"message": {"message": "ValueError: inner", "extraInfo": {"timestamp": "10"}}}')
    done = run_rank(
        HEADER + "from aioelastic._errors.child_failed import ChildFailedError\n"
        "from aioelastic._errors.process_failure import ProcessFailure\n"
        "@record\ndef main():\n"
        f"    raise ChildFailedError('inner', {{0: ProcessFailure(0, 7, -11, {str(inner)!r})}})\nmain()"
    )
    failure = failure_of(done, error_path)

    assert done.returncode == 1
    assert (failure.message, failure.timestamp) == ("ValueError: inner", 10.0)
    assert failure.error_file_data["message"]["errorCode"] == -11


@pytest.mark.parametrize("content", [None, "torn {"])
def test_a_failure_without_a_usable_file_is_recorded_itself(
    content: str | None, error_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The report stands in where the root cause wrote nothing that can be passed on."""
    monkeypatch.setenv("TORCHELASTIC_ERROR_FILE", str(error_path))
    inner = tmp_path / "inner.json"
    if content is not None:
        inner.write_text(content)
    error = ChildFailedError("inner", {0: ProcessFailure(0, 7, -9, str(inner))})

    @record
    def main() -> None:
        raise error

    with pytest.raises(ChildFailedError):
        main()
    text = json.loads(error_path.read_text())["message"]["message"]
    assert text.startswith("ChildFailedError: inner failed on")
    assert "Signal 9 (SIGKILL) received by PID 7" in text


def test_a_failure_in_a_group_of_one_is_passed_upward(tmp_path: Path) -> None:
    """A task group wraps what one of its tasks raised; the cause is the same."""
    inner = tmp_path / "inner.json"
    inner.write_text('{"message": "lost"}')
    error = ChildFailedError("inner", {0: ProcessFailure(0, 7, 3, str(inner))})
    notebook = Notebook()

    @record(error_handler=notebook)
    def main() -> None:
        raise ExceptionGroup("tasks", [ExceptionGroup("inner tasks", [error])])

    with pytest.raises(ExceptionGroup):
        main()
    assert ["initialize", (str(inner), 3)] == notebook.told


async def test_a_cancelled_coroutine_is_not_recorded() -> None:
    """Whoever cancelled it wanted it to end."""
    notebook = Notebook()

    @record(error_handler=notebook)
    async def main() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(main())
    await asyncio.sleep(0)
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert notebook.told == ["initialize"]


def test_a_cancellation_that_leaves_a_plain_function_is_recorded() -> None:
    """Outside a task it ends the program like any other exception."""
    notebook = Notebook()
    error = asyncio.CancelledError()

    @record(error_handler=notebook)
    def main() -> None:
        raise error

    with pytest.raises(asyncio.CancelledError):
        main()
    assert ["initialize", error] == notebook.told


async def test_a_closed_coroutine_is_not_recorded() -> None:
    """Closing a coroutine that was never finished is no failure."""
    notebook = Notebook()

    @record(error_handler=notebook)
    async def main() -> None:
        await asyncio.Event().wait()

    coroutine = main()
    coroutine.send(None)
    coroutine.close()

    assert notebook.told == ["initialize"]


def test_a_generator_exit_of_a_plain_function_is_not_recorded() -> None:
    """It is how generators are closed, and no failure."""
    notebook = Notebook()

    def main() -> None:
        raise GeneratorExit

    with pytest.raises(GeneratorExit):
        record(main, notebook)()
    assert notebook.told == ["initialize"]


def test_a_broken_handler_does_not_mask_the_exception(caplog: pytest.LogCaptureFixture) -> None:
    """The user's exception goes on, and the handler's own is logged."""

    @record(error_handler=Broken())
    def main() -> None:
        raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        main()
    assert caplog.text.count("RuntimeError: broken handler") == 2


def test_the_handler_may_be_given_as_pytorch_takes_it() -> None:
    """``record(fn, error_handler)`` uses that handler."""
    notebook = Notebook()
    error = ValueError("x")

    def main(raised: ValueError) -> None:
        raise raised

    with pytest.raises(ValueError, match="x"):
        record(main, notebook)(error)
    assert ["initialize", error] == notebook.told


@record
def double(number: int) -> int:
    """Double a number."""
    return 2 * number


@record
async def double_later(number: int) -> int:
    """Double a number some time."""
    return 2 * number


async def test_a_recorded_function_is_the_function() -> None:
    """Name, text, kind, result and pickling are those of the function."""
    assert double(3) == 6
    assert await double_later(3) == 6
    assert (double.__name__, double.__doc__) == ("double", "Double a number.")
    assert asyncio.iscoroutinefunction(double_later) == (sys.version_info < (3, 14))
    assert not asyncio.iscoroutinefunction(double)
    assert double.__module__ == __name__


class AsyncObject:
    """An object that is called and awaited."""

    async def __call__(self, number: int) -> int:
        """Double a number some time."""
        return 2 * number

    async def method(self, number: int) -> int:
        """Double a number some time."""
        return 2 * number


async def test_async_callables_of_all_kinds_are_awaited() -> None:
    """Partials, methods and callable objects that are async are recorded when awaited."""
    wrapped = [record(functools.partial(double_later)), record(AsyncObject().method), record(AsyncObject())]

    assert [await each(3) for each in wrapped] == [6, 6, 6]
    assert record(functools.partial(double, 3))() == 6


def test_a_recorded_rank_stays_light(run_rank: Any) -> None:
    """Until something fails, the decorator costs a rank none of the heavy modules."""
    done = run_rank(
        "import sys, aioelastic\nbefore = set(sys.modules)\n@aioelastic.record\ndef main(): pass\nmain()\n"
        "@aioelastic.record\nasync def later(): pass\n"
        "print(sorted({'asyncio', 'anyio', 'psutil', 'inspect', 'json', 'logging', 'traceback', "
        "'dataclasses', 'tempfile', 'pathlib'} & (set(sys.modules) - before)))"
    )

    assert (done.stdout, done.stderr) == ("[]\n", "")


def test_public_names_travel(run_rank: Any) -> None:
    """What the root gives out is pickled by its public name."""
    done = run_rank(
        "import pickle, aioelastic\nfailure = aioelastic.ProcessFailure(0, 7, -9, '')\n"
        "error = pickle.loads(pickle.dumps(aioelastic.ChildFailedError('n', {0: failure})))\n"
        "print(error.failures[0] == failure, type(failure).__module__)"
    )

    assert done.stdout == "True aioelastic\n"
    assert isinstance(pickle.dumps(double), bytes)
