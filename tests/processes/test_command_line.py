"""The words of a rank's command."""

import doctest
import errno
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._processes import command_line as module
from aioelastic._processes.command_line import command_line
from tests.helpers.arguments import LIMIT, PASSABLE, SECRET, Number, Place, Word


class Unspeakable:
    """An argument that cannot be made text."""

    def __str__(self) -> str:
        """Fail."""
        raise KeyError(SECRET)


class TestWords:
    """The words of a command."""

    @pytest.mark.parametrize(
        ("args", "words"),
        [
            ("hello", ("hello",)),
            ("two words", ("two words",)),
            ("", ("",)),
            ((), ()),
            ([], ()),
            ((1, 2, 3), ("1", "2", "3")),
            (([1, 2, 3],), ("[1, 2, 3]",)),
            (["a", None, 1.5, {"k": 1}], ("a", "None", "1.5", "{'k': 1}")),
            ((Path("/a/b"), Place()), ("/a/b", "/tmp/\udcff")),
            (b"raw\xff", ("raw\udcff",)),
            ((b"raw\xff",), ("raw\udcff",)),
            (Path("/a/b"), ("/a/b",)),
            ((Word.GO, Number.TWO), ("go", "2")),
            (("${local_rank}", "a'b\n"), ("${local_rank}", "a'b\n")),
        ],
    )
    def test_arguments_become_text(self, args: object, words: tuple[str, ...]) -> None:
        """Single text is one argument, the members of a tuple or list are one each, others are made text by str."""
        made = command_line("echo", args, 0)

        assert made == ("echo", *words)
        assert {type(word) for word in made} == {str}

    @settings(deadline=None)  # the machine may be busy
    @given(words=st.lists(PASSABLE, max_size=5))
    def test_text_is_unchanged(self, words: list[str]) -> None:
        """Text reaches the process as it is."""
        assert command_line("echo", words, 0) == ("echo", *words)

    @pytest.mark.parametrize("args", [1, None, {0: "a"}, {"a"}, iter(("a",)), range(2), 1.5])
    def test_other_containers_are_refused(self, args: object) -> None:
        """What is neither one argument nor a tuple or list of them is refused with the way to write it."""
        with pytest.raises(SpecificationTypeError, match=r"args of rank 3 .*\(argument,\)"):
            command_line("echo", args, 3)

    def test_an_argument_without_text_names_its_place(self) -> None:
        """An argument whose str fails is told by rank and index."""
        with pytest.raises(SpecificationError, match=r"args of rank 2, index 1, .*Unspeakable"):
            command_line("echo", ("a", Unspeakable()), 2)

    @pytest.mark.parametrize("word", [f"{SECRET}\0", f"{SECRET}\ud800", f"{SECRET}".encode() + b"\0"])
    def test_what_no_process_can_take_is_refused(self, word: str | bytes) -> None:
        """A NUL or a lone surrogate is told by rank and index, never with the argument."""
        with pytest.raises(SpecificationError, match=r"args of rank 2, index 1, has a") as caught:
            command_line("echo", ("a", word), 2)

        assert SECRET not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None

    def test_the_kernels_limit_is_known(self) -> None:
        """The longest argument that is let through is the longest that the kernel takes."""
        longest = "a" * (LIMIT - 1)

        words = command_line("/bin/true", (longest,), 0)

        assert subprocess.run(words, check=False, env={}).returncode == 0
        with pytest.raises(SpecificationError, match=rf"rank 4, index 1, takes {LIMIT + 1} bytes .*{LIMIT}") as caught:
            command_line("/bin/true", ("a", longest + "a"), 4)
        assert len(str(caught.value)) < 300

    @pytest.mark.skipif(sys.platform != "linux", reason="the limit is Linux's")
    def test_the_kernel_refuses_one_byte_more(self) -> None:
        """What the limit stops would not have started."""
        with pytest.raises(OSError, match="too long") as caught:
            subprocess.run(["/bin/true", "a" * LIMIT], check=False, env={})

        assert caught.value.errno == errno.E2BIG

    def test_the_limit_counts_bytes(self) -> None:
        """Characters of several bytes count for what they are."""
        with pytest.raises(SpecificationError, match=f"takes {LIMIT + 1} bytes"):
            command_line("echo", ("é" * (LIMIT // 2),), 0)

    def test_the_program_may_be_a_path(self) -> None:
        """A path is a program, and is not resolved."""
        assert command_line(Path("bin/x"), (), 0) == ("bin/x",)

    @pytest.mark.parametrize("entrypoint", [b"echo", Place(), 3, None, ["echo"]])
    def test_the_program_is_text(self, entrypoint: str) -> None:
        """Bytes and other things are no program."""
        with pytest.raises(SpecificationTypeError, match="entrypoint"):
            command_line(entrypoint, (), 0)

    @pytest.mark.parametrize(
        "entrypoint", ["", "a\0b", "a\ud800", "a" * LIMIT], ids=["empty", "NUL", "surrogate", "long"]
    )
    def test_the_program_is_possible(self, entrypoint: str) -> None:
        """An empty or impossible program is refused."""
        with pytest.raises(SpecificationError, match="entrypoint"):
            command_line(entrypoint, (), 0)

    def test_nothing_given_is_changed(self) -> None:
        """The arguments are only read."""
        args = ["a", [1]]

        command_line("echo", args, 0)

        assert args == ["a", [1]]


def test_examples_run() -> None:
    """The examples of the documentation do what they show."""
    assert doctest.testmod(module).failed == 0
