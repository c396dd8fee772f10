"""Cases from the field: groups whose failure has to be understood."""

import json
import signal
import time
from pathlib import Path

import pytest

from aioelastic import ChildFailedError, ProcessFailure, Std
from tests.helpers.groups import python_group

RECORDED = "import os, signal, sys, time\nfrom aioelastic import record\n"


async def failure_of(folder: Path, program: str, stderr: str = "redirects") -> ProcessFailure:
    """Run one rank of a group to its failure."""
    options = {"redirects": Std.NONE, "tee": Std.NONE, stderr: Std.ERR, "local_ranks_filter": {1}}
    async with python_group(folder, program, "import time; time.sleep(60)", **options) as context:
        result = await context.wait(timeout=60)
        assert result is not None
        assert list(result.failures) == [0]
        with pytest.raises(ChildFailedError) as caught:
            result.raise_for_failures()
        assert len(str(caught.value)) < 100_000
        return result.failures[0]


@pytest.mark.parametrize("stderr", ["redirects", "tee"])
@pytest.mark.parametrize(
    ("program", "last"),
    [
        ("def train():\n    raise ValueError('bad batch')\ntrain()", "ValueError: bad batch"),
        ("import os; os.write(2, b'CUDA error: out of memory\\n' * 3); os._exit(1)", "CUDA error: out of memory"),
        ("import sys; sys.exit('no such data set')", "no such data set"),
        ("this is no Python", "SyntaxError: invalid syntax"),
        ("import no_such_module", "No module named 'no_such_module'"),
        ("import sys; sys.stderr.write('no newline at the end'); sys.stderr.flush(); sys.exit(2)", "at the end"),
        ("import os; os.write(2, b'\\xff\\x00 broken \\x1b[31mbytes\\n'); os._exit(1)", "broken bytes"),
        ("import os, signal; os.write(2, b'assertion failed\\n'); os.abort()", "assertion failed"),
    ],
)
async def test_the_cause_is_shown_of_a_script_that_records_nothing(
    tmp_path: Path, program: str, last: str, stderr: str
) -> None:
    """The last lines of a redirected or teed stderr are in the failure's message, whatever they are.

    https://github.com/pytorch/pytorch/issues/113546, https://github.com/huggingface/accelerate/issues/4277
    """
    failure = await failure_of(tmp_path, program, stderr)

    assert last in failure.message.splitlines()[-1] + failure.message.splitlines()[-2]
    assert failure.error_file == "<N/A>"


async def test_a_deep_traceback_is_shown_from_its_end(tmp_path: Path) -> None:
    """Of megabytes on stderr the message has the end, and stays short.

    https://github.com/pytorch/pytorch/issues/113546
    """
    program = "import sys\nprint('noise ' * 10**6, file=sys.stderr)\nraise ValueError('the end')"
    failure = await failure_of(tmp_path, program)

    assert failure.message.endswith("ValueError: the end")
    assert len(failure.message) < 10_000


async def test_a_rank_killed_while_it_writes_its_file_leaves_no_torn_one(tmp_path: Path) -> None:
    """The file appears with all its content or not at all, and the failure is the kill.

    https://github.com/ROCm/vllm/issues/117
    """
    # json.dumps is the last step before the write; the kernel can do no more harm in the write itself.
    program = RECORDED + (
        "write = os.fdopen\nimport io\n"
        "from aioelastic._errors import error_files\n"
        "def torn(*_, **__): os.kill(os.getpid(), signal.SIGKILL)\n"
        "error_files.os.link = torn\n"
        "@record\ndef main():\n    raise ValueError('x')\nmain()"
    )
    failure = await failure_of(tmp_path, program)

    assert failure.signal_name() == "SIGKILL"
    assert failure.message.startswith("Signal 9 (SIGKILL) received by PID")
    assert failure.error_file == "<N/A>"


async def test_a_torn_file_of_another_writer_breaks_nothing(tmp_path: Path) -> None:
    """A writer without our care (torch's) that is killed half-way leaves a failure that says so and shows the rest.

    https://github.com/ROCm/vllm/issues/117, https://github.com/pytorch/pytorch/issues/65041
    """
    program = RECORDED + (
        "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n"
        '    file.write(\'{"message": {"message": "RuntimeError: NCCL\')\n    file.flush()\n'
        "    os.kill(os.getpid(), signal.SIGKILL)"
    )
    failure = await failure_of(tmp_path, program)

    assert "Signal 9 (SIGKILL)" in failure.message
    assert "is torn or no JSON" in failure.message
    assert "RuntimeError: NCCL" in failure.message


@pytest.mark.parametrize("content", ["", "[]", "null", "{}", '{"message": 3}', "\\0" * 100, '{"message": ' * 5000])
async def test_a_nonsensical_file_breaks_nothing(tmp_path: Path, content: str) -> None:
    """Whatever stands in the place of the file, the exit code is told, and what is wrong with the file.

    https://github.com/pytorch/pytorch/issues/65041
    """
    program = RECORDED + f"open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w').write('{content}')\nos._exit(9)"
    failure = await failure_of(tmp_path, program)

    assert "ended with exit code 9" in failure.message
    assert f"The error file {failure.error_file} " in failure.message


async def test_a_grandchild_that_raises_later_does_not_overwrite_the_cause(tmp_path: Path) -> None:
    """Among records the first writer wins, although the environment, and so the file, is shared.

    https://github.com/pytorch/pytorch/issues/65041
    """
    later = "from aioelastic import record\n@record\ndef main():\n    raise KeyError('consequence')\nmain()"
    program = RECORDED + (
        "import subprocess\n@record\ndef main():\n    raise ValueError('cause')\n"
        "try:\n    main()\nfinally:\n"
        f"    subprocess.run([sys.executable, '-c', {later!r}])"
    )
    failure = await failure_of(tmp_path, program)

    assert failure.message == "ValueError: cause"
    assert "consequence" not in json.dumps(failure.error_file_data)


async def test_a_grandchild_that_raises_first_is_the_cause(tmp_path: Path) -> None:
    """A data loader's exception comes before the one of the rank that waits for it, and is nearer to the cause.

    https://github.com/pytorch/pytorch/issues/65041
    """
    first = "from aioelastic import record\n@record\ndef main():\n    raise KeyError('cause')\nmain()"
    program = RECORDED + (
        "import subprocess\n@record\ndef main():\n"
        f"    subprocess.run([sys.executable, '-c', {first!r}], check=True)\nmain()"
    )
    failure = await failure_of(tmp_path, program)

    assert failure.message == "KeyError: 'cause'"


@pytest.mark.parametrize("fault", ["raise RuntimeError('no text')", "return 3", "raise SystemExit"])
@pytest.mark.half
async def test_an_exception_without_a_text_is_recorded(tmp_path: Path, fault: str) -> None:
    """When ``str()`` of an exception fails its type and traceback are there.

    https://github.com/pytorch/pytorch/issues/65041
    """
    program = RECORDED + (
        f"class Mute(Exception):\n    def __str__(self): {fault}\n@record\ndef main():\n    raise Mute\nmain()"
    )
    failure = await failure_of(tmp_path, program)

    assert "Mute" in failure.message
    assert failure.exitcode == 1


async def test_a_huge_message_is_cut_and_readable(tmp_path: Path) -> None:
    """An exception with 100 MB of text gives a file and a message of a bounded size, with head and tail.

    https://github.com/pytorch/pytorch/issues/65041
    """
    program = RECORDED + (
        "sys.excepthook = lambda *_: None\n"
        "@record\ndef main():\n    raise ValueError('head' + 'x' * 100_000_000 + 'tail')\nmain()"
    )
    began = time.monotonic()
    failure = await failure_of(tmp_path, program)

    assert failure.message.startswith("ValueError: headxxx")
    assert failure.message.endswith("xxxtail")
    assert len(failure.message) < 10**6
    assert Path(failure.error_file).stat().st_size < 10**7
    assert time.monotonic() - began < 30


async def test_a_huge_file_of_another_writer_is_not_read(tmp_path: Path) -> None:
    """A file of 100 MB costs no memory: the failure says that it is too large, and how it begins.

    https://github.com/pytorch/pytorch/issues/65041
    """
    program = RECORDED + (
        "with open(os.environ['TORCHELASTIC_ERROR_FILE'], 'w') as file:\n"
        '    file.write(\'{"message": "NCCL\')\n    file.truncate(100_000_000)\nos._exit(1)'
    )
    failure = await failure_of(tmp_path, program)

    assert "is larger than 16 MiB" in failure.message
    assert "NCCL" in failure.message


async def test_a_rank_killed_after_it_recorded_has_its_record(tmp_path: Path) -> None:
    """The exception is the cause although the exit code is that of the signal.

    https://github.com/ROCm/vllm/issues/117
    """
    program = RECORDED + (
        "@record\ndef main():\n    raise ValueError('cause')\n"
        "try:\n    main()\nfinally:\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    failure = await failure_of(tmp_path, program)

    assert failure.message == "ValueError: cause"
    assert (failure.exitcode, failure.signal_name()) == (-signal.SIGKILL, "SIGKILL")
