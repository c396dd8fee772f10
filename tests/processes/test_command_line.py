"""What a rank's process is given: words, variables, program and directory."""

import doctest
import errno
import os
import resource
import socket
import subprocess
import sys
import tempfile
from collections import OrderedDict
from collections.abc import Callable, Iterator
from enum import Enum, IntEnum
from pathlib import Path
from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelastic._base.defaults import MAX_ARG_STRLEN
from aioelastic._errors.exceptions import RanksError, SpecificationError, SpecificationTypeError
from aioelastic._processes import command_line as module
from aioelastic._processes.command_line import (
    check_cwd,
    command_line,
    find_command,
    group_size,
    rank_environment,
    require_ranks,
)

LIMIT = max(MAX_ARG_STRLEN, 32 * resource.getpagesize())
SECRET = "hunter2"
PASSABLE = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))


class Unspeakable:
    """An argument that cannot be made text."""

    def __str__(self) -> str:
        """Fail."""
        raise KeyError(SECRET)


class Place:
    """A path of bytes."""

    def __fspath__(self) -> bytes:
        """Give bytes that are no UTF-8."""
        return b"/tmp/\xff"


class BrokenPath:
    """A path that fails."""

    def __fspath__(self) -> str:
        """Fail."""
        raise RuntimeError(SECRET)


class Word(str, Enum):  # noqa: UP042 - a StrEnum prints as what it is
    """Text that prints as something else."""

    GO = "go"


class Number(IntEnum):
    """A number with a name."""

    TWO = 2


class Level(int, Enum):
    """A number that prints as its name."""

    THREE = 3


@pytest.fixture(name="elsewhere")
def _elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Go to a directory of the test's own, and back."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


def _program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(mode)
    return path


class TestRanks:
    """The keys of per-rank maps."""

    def test_a_subset_is_enough_unless_complete(self) -> None:
        """A map of some ranks is fine where not all are needed."""
        require_ranks("prefixes", {1: "b"}, 2, complete=False)

        with pytest.raises(RanksError) as caught:
            require_ranks("envs", {1: "b"}, 2, complete=True)

        assert (caught.value.missing, caught.value.extra) == ((0,), ())

    @pytest.mark.parametrize("key", [2, -1, "0", 1.0, True, None])
    def test_keys_that_are_no_ranks_are_extra(self, key: object) -> None:
        """A key that is no rank is named as extra; True and 1.0, which equal 1, do not stand for it."""
        with pytest.raises(RanksError, match="tee") as caught:
            require_ranks("tee", {0: "a", key: "b"}, 2, complete=True)

        assert (caught.value.missing, caught.value.extra) == ((1,), (key,))

    @pytest.mark.parametrize("value", [None, [("a",)], "a", {0}])
    def test_a_map_is_a_map(self, value: object) -> None:
        """What is no map is refused with the form of one."""
        with pytest.raises(SpecificationTypeError, match=r"args must map ranks to values, as in \{0:"):
            require_ranks("args", value, 1, complete=True)

    @settings(deadline=None)  # the machine may be busy
    @given(ranks=st.integers(0, 20).flatmap(lambda nprocs: st.permutations(range(nprocs))))
    def test_both_maps_give_the_size(self, ranks: list[int]) -> None:
        """Maps of the ranks 0..n-1, in any order, give n; so do arguments alone."""
        nprocs = len(ranks)
        args: dict[int, tuple[str, ...]] = dict.fromkeys(ranks, ())

        assert group_size(args, {rank: {} for rank in range(nprocs)}) == nprocs
        assert group_size(MappingProxyType(args), None) == nprocs

    def test_no_ranks_are_a_group(self) -> None:
        """Empty maps give an empty group."""
        assert group_size({}, {}) == 0
        assert group_size({}, None) == 0

    @pytest.mark.parametrize(
        ("args", "envs", "argument", "missing", "extra"),
        [
            ({0: (), 1: ()}, {0: {}}, "envs", (1,), ()),
            ({0: ()}, {0: {}, 1: {}}, "args", (1,), ()),
            ({0: ()}, {}, "envs", (0,), ()),
            ({0: ()}, {1: {}}, "envs", (0,), (1,)),
            ({0: (), 2: ()}, {0: {}, 1: {}}, "args", (1,), (2,)),
            ({1: ()}, None, "args", (0,), (1,)),
        ],
    )
    def test_the_error_says_which_map(
        self, args: object, envs: object, argument: str, missing: tuple[int, ...], extra: tuple[int, ...]
    ) -> None:
        """What is missing and what is extra is told of the right map; it is a RuntimeError, as in the seed."""
        with pytest.raises(RuntimeError, match=argument) as caught:
            group_size(args, envs)

        assert isinstance(caught.value, RanksError)
        fault = caught.value
        assert (fault.argument, fault.missing, fault.extra) == (argument, missing, extra)

    def test_both_maps_can_be_wrong(self) -> None:
        """When both maps are wrong, the second is told in a note."""
        with pytest.raises(RanksError, match=r"args .* missing 0; extra 1") as caught:
            group_size({1: ()}, {2: {}})

        assert any("envs" in note and "extra 2" in note for note in caught.value.__notes__)

    @pytest.mark.parametrize(("args", "envs"), [([()], {0: {}}), ({0: ()}, [{}]), (None, None)])
    def test_both_must_be_maps(self, args: object, envs: object) -> None:
        """A list in the place of a map is a TypeError."""
        with pytest.raises(SpecificationTypeError, match="must map ranks"):
            group_size(args, envs)


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


NAMES = st.text(st.characters(exclude_characters="=\0", exclude_categories=["Cs"]), min_size=1)
VALUES = st.one_of(PASSABLE, st.integers(), st.floats(), st.none(), PASSABLE.map(Path))


class TestVariables:
    """The variables of a rank."""

    @settings(deadline=None)  # the machine may be busy
    @given(inherited=st.dictionaries(NAMES, PASSABLE), env=st.dictionaries(NAMES, VALUES))
    def test_own_variables_go_over_the_inherited(
        self, inherited: dict[str, str], env: dict[str, str | int | float | Path | None]
    ) -> None:
        """Each variable is the rank's own as text, gone where that is None, and inherited where it has none."""
        before = dict(inherited), dict(env)

        merged = rank_environment(inherited, env, 0)

        own = {name: str(value) for name, value in env.items() if value is not None}
        kept = {name: value for name, value in inherited.items() if name not in env}
        assert merged == own | kept
        assert (inherited, env) == before

    @pytest.mark.parametrize("env", [None, {}])
    def test_no_variables_of_its_own(self, env: dict[str, str] | None) -> None:
        """Without any of its own a rank gets a copy of what is inherited."""
        inherited = {"A": "1"}

        merged = rank_environment(inherited, env, 0)

        assert merged == inherited
        assert merged is not inherited

    def test_the_supervisors_own_variables_stay(self) -> None:
        """Removing a variable from a rank does not remove it here."""
        assert "PATH" not in rank_environment(os.environ, {"PATH": None}, 0)
        assert "PATH" in os.environ

    def test_removing_what_is_not_there_is_fine(self) -> None:
        """None asks for absence, which may be so already."""
        assert rank_environment({}, {"A": None}, 0) == {}

    def test_special_text_and_numbers(self) -> None:
        """Enums and paths of bytes become the text they stand for."""
        env = OrderedDict(A=Word.GO, B=Number.TWO, C=Place(), D=float("inf"), E=0, F="", G=Level.THREE)

        merged = rank_environment({}, env, 0)  # type: ignore[arg-type]

        assert merged == {"A": "go", "B": "2", "C": "/tmp/\udcff", "D": "inf", "E": "0", "F": "", "G": "3"}
        assert {type(value) for value in merged.values()} == {str}

    @pytest.mark.parametrize("value", [True, False])
    def test_booleans_are_refused(self, value: bool) -> None:
        """A boolean could mean 1 or True, so the error asks which."""
        with pytest.raises(SpecificationTypeError, match=r"rank 5, variable 'DEBUG', is a bool: .*'1' or 'True'"):
            rank_environment({}, {"DEBUG": value}, 5)

    @pytest.mark.parametrize("value", [[SECRET], {SECRET: 1}, SECRET.encode(), (SECRET,), object(), 1j])
    def test_other_values_are_refused(self, value: object) -> None:
        """A value of another type is told by rank and name, never with the value."""
        with pytest.raises(SpecificationTypeError, match="rank 5, variable 'KEY'") as caught:
            rank_environment({}, {"KEY": value}, 5)  # type: ignore[dict-item]

        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(
        "value",
        [f"{SECRET}\0", f"{SECRET}\ud800", SECRET * LIMIT, BrokenPath(), 10**5000],
        ids=["NUL", "surrogate", "long", "path", "number"],
    )
    def test_impossible_values_are_refused(self, value: str) -> None:
        """A NUL, a lone surrogate, too much text or a broken path is told by rank and name, never with the value."""
        with pytest.raises(SpecificationError, match="rank 5, variable 'KEY'") as caught:
            rank_environment({}, {"KEY": value}, 5)

        assert SECRET not in str(caught.value)
        assert caught.value.__suppress_context__ or caught.value.__context__ is None

    @pytest.mark.parametrize("name", ["", "A\0"])
    def test_impossible_names_are_refused(self, name: str) -> None:
        """A name that no variable can have is told by rank."""
        with pytest.raises(SpecificationError, match="envs of rank 5: a variable's name"):
            rank_environment({}, {name: "1"}, 5)

    @pytest.mark.parametrize("name", ["A=B", "=A", "A="])
    def test_a_name_with_an_equals_sign_is_refused(self, name: str) -> None:
        """A name with an equals sign is refused, also one that would be removed."""
        with pytest.raises(SpecificationError, match="'='"):
            rank_environment({}, {name: None}, 5)

    def test_a_value_in_the_name_is_not_told(self) -> None:
        """Somebody who wrote name and value into the key does not find the value in a log."""
        with pytest.raises(SpecificationError, match="'TOKEN'") as caught:
            rank_environment({}, {f"TOKEN={SECRET}": ""}, 5)

        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize("name", [1, b"A", None])
    def test_names_are_text(self, name: str) -> None:
        """A name that is no str is a TypeError."""
        with pytest.raises(SpecificationTypeError, match="rank 5"):
            rank_environment({}, {name: "1"}, 5)

    def test_unencodable_names_are_refused(self) -> None:
        """A lone surrogate in a name is refused."""
        with pytest.raises(SpecificationError, match="rank 5, variable"):
            rank_environment({}, {"A\ud800": "1"}, 5)

    @pytest.mark.parametrize("env", [[("A", "1")], "A=1", 3])
    def test_the_variables_are_a_map(self, env: dict[str, str]) -> None:
        """What is no map is a TypeError."""
        with pytest.raises(SpecificationTypeError, match="rank 5 must be a map"):
            rank_environment({}, env, 5)

    def test_the_limit_counts_name_and_value(self) -> None:
        """The longest variable that is let through is the longest that the kernel takes."""
        longest = "a" * (LIMIT - len("KEY=") - 1)

        env = rank_environment({}, {"KEY": longest}, 0)

        assert subprocess.run(["/bin/true"], check=False, env=env).returncode == 0
        with pytest.raises(SpecificationError, match=f"variable 'KEY', takes {LIMIT + 1} bytes"):
            rank_environment({}, {"KEY": longest + "a"}, 0)


class TestProgram:
    """The file that would run."""

    def test_the_first_along_path_wins(self, tmp_path: Path) -> None:
        """A name is looked up in the rank's own PATH, in order."""
        first, second = _program(tmp_path / "a/tool"), _program(tmp_path / "b/tool")

        assert find_command("tool", {"PATH": f"/nowhere:{first.parent}:{second.parent}"}, None) == str(first)
        assert find_command("tool", {"PATH": f"{second.parent}:{first.parent}"}, None) == str(second)

    def test_without_path_the_default_is_searched(self) -> None:
        """A rank without PATH finds what is on the system's default path."""
        assert find_command("sh", {}, None) in {"/bin/sh", "/usr/bin/sh"}

    def test_a_relative_path_is_seen_from_the_ranks_directory(self, tmp_path: Path) -> None:
        """A command with a slash is looked for from cwd, as the rank does after going there."""
        program = _program(tmp_path / "bin/tool")

        assert find_command("bin/tool", {}, str(tmp_path)) == str(program)
        with pytest.raises(FileNotFoundError):
            find_command("bin/tool", {"PATH": str(tmp_path)}, "/")

    @pytest.mark.parametrize("path", ["bin", "./bin", "/nowhere:bin"])
    def test_relative_entries_are_seen_from_the_ranks_directory(self, tmp_path: Path, path: str) -> None:
        """A relative entry of PATH is looked for from cwd."""
        program = _program(tmp_path / "bin/tool")

        found = find_command("tool", {"PATH": path}, str(tmp_path))

        assert Path(found).samefile(program)
        assert Path(found).is_absolute()

    def test_an_empty_entry_is_the_ranks_directory(self, tmp_path: Path) -> None:
        """An empty entry of PATH is cwd, as exec has it."""
        program = _program(tmp_path / "tool")

        assert find_command("tool", {"PATH": "/nowhere:"}, str(tmp_path)) == str(program)

    def test_without_a_directory_ours_counts(self, elsewhere: Path) -> None:
        """Without cwd, relative paths are seen from the supervisor's directory."""
        program = _program(elsewhere / "tool")

        assert Path(find_command("./tool", {}, None)).samefile(program)

    @pytest.mark.parametrize("command", ["no-such-tool", "", "./no-such-tool", "/no/such/tool"])
    def test_no_such_program(self, command: str) -> None:
        """A program that is not there is FileNotFoundError with errno and the name asked for."""
        with pytest.raises(FileNotFoundError) as caught:
            find_command(command, {"PATH": "/nowhere"}, "/")

        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, command)

    def test_a_file_on_the_way(self, tmp_path: Path) -> None:
        """A path through a file is NotADirectoryError; along PATH it is passed over."""
        _program(tmp_path / "file")
        program = _program(tmp_path / "bin/tool")

        with pytest.raises(NotADirectoryError) as caught:
            find_command(f"{tmp_path}/file/tool", {}, None)
        assert caught.value.errno == errno.ENOTDIR
        assert find_command("tool", {"PATH": f"{tmp_path}/file:{tmp_path}/bin"}, None) == str(program)

    def test_a_directory_does_not_run(self, tmp_path: Path) -> None:
        """A directory is PermissionError, as exec says."""
        with pytest.raises(PermissionError) as caught:
            find_command(str(tmp_path), {}, None)

        assert (caught.value.errno, caught.value.filename) == (errno.EACCES, str(tmp_path))

    def test_a_file_without_permission_does_not_run(self, tmp_path: Path) -> None:
        """A file that is not executable is PermissionError, for root as well."""
        program = _program(tmp_path / "tool", mode=0o644)

        with pytest.raises(PermissionError):
            find_command(str(program), {}, None)

    @pytest.mark.usefixtures("elsewhere")
    def test_a_socket_does_not_run(self) -> None:
        """What is no regular file does not run, whatever its mode."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind("tool")
            Path("tool").chmod(0o755)

            with pytest.raises(PermissionError):
                find_command("./tool", {}, None)

    def test_what_does_not_run_is_passed_over_but_remembered(self, tmp_path: Path) -> None:
        """Along PATH a file that may not run is passed over, and is told only when nothing runs, with its path."""
        refused = _program(tmp_path / "a/tool", mode=0o644)
        (tmp_path / "b/tool").mkdir(parents=True)
        program = _program(tmp_path / "c/tool")

        assert find_command("tool", {"PATH": f"{tmp_path}/a:{tmp_path}/b:{tmp_path}/c"}, None) == str(program)
        with pytest.raises(PermissionError) as caught:
            find_command("tool", {"PATH": f"{tmp_path}/a:{tmp_path}/b:/nowhere"}, None)
        assert caught.value.filename == str(refused)

    def test_a_loop_of_symlinks(self, tmp_path: Path) -> None:
        """Other refusals of the system keep their errno."""
        (tmp_path / "tool").symlink_to("tool")

        with pytest.raises(OSError, match="tool") as caught:
            find_command("./tool", {}, str(tmp_path))

        assert caught.value.errno == errno.ELOOP

    @pytest.mark.parametrize("path", ["a:b", "b:a", ":a", "/nowhere", "a/tool:b"])
    @pytest.mark.parametrize("command", ["tool", "b/tool", "a/tool", "a", "b/tool/x"])
    def test_it_is_what_subprocess_does(self, tmp_path: Path, path: str, command: str) -> None:
        """The verdict is the one of subprocess: the same file runs, or the same errno says why not."""
        _program(tmp_path / "a/tool", mode=0o644)
        _program(tmp_path / "b/tool").write_text('#!/bin/sh\necho "$0"\n')
        env = {"PATH": path}

        asked = _outcome(lambda: find_command(command, env, str(tmp_path)))

        assert asked == _outcome(
            lambda: str(tmp_path / subprocess.check_output([command], cwd=tmp_path, env=env, text=True).strip())
        )


def _outcome(call: Callable[[], str]) -> object:
    """Give the file that a call names, or the errno of its refusal."""
    try:
        status = Path(call()).stat()
    except OSError as refusal:
        return errno.errorcode[refusal.errno or 0]
    return status.st_dev, status.st_ino


class TestDirectory:
    """The working directory of ranks."""

    def test_none_is_ours(self) -> None:
        """None leaves ranks where the supervisor is."""
        assert check_cwd(None) is None

    def test_it_becomes_absolute(self, elsewhere: Path) -> None:
        """A relative directory is the one of this moment, whatever the supervisor does later."""
        (elsewhere / "sub").mkdir()

        assert check_cwd("sub") == str(elsewhere / "sub")
        assert check_cwd(Path("./sub/")) == str(elsewhere / "sub")
        assert check_cwd(elsewhere) == str(elsewhere)

    def test_the_way_through_a_symlink_stays(self, elsewhere: Path) -> None:
        """A path back out of a symlink leads where the kernel goes, not where the text seems to go."""
        (elsewhere / "far/deep").mkdir(parents=True)
        (elsewhere / "link").symlink_to("far/deep")

        found = check_cwd("link/..")

        assert found is not None
        assert Path(found).samefile(elsewhere / "far")

    @pytest.mark.parametrize("cwd", ["/no/such/directory", ""])
    def test_no_such_directory(self, cwd: str) -> None:
        """A directory that is not there is FileNotFoundError; the empty path is not here."""
        with pytest.raises(FileNotFoundError) as caught:
            check_cwd(cwd)

        assert (caught.value.errno, caught.value.filename) == (errno.ENOENT, cwd)

    def test_a_file_is_no_directory(self, tmp_path: Path) -> None:
        """A file is NotADirectoryError."""
        program = _program(tmp_path / "tool")

        with pytest.raises(NotADirectoryError) as caught:
            check_cwd(program)

        assert (caught.value.errno, caught.value.filename) == (errno.ENOTDIR, str(program))

    @pytest.mark.parametrize("cwd", [3, b"/tmp", Place(), ["/tmp"], True])
    def test_other_types_are_refused(self, cwd: object) -> None:
        """What is no path of text is a TypeError."""
        with pytest.raises(SpecificationTypeError, match="cwd"):
            check_cwd(cwd)

    @pytest.mark.parametrize("cwd", ["/tmp\0", "/tmp\ud800"])
    def test_impossible_paths_are_refused(self, cwd: str) -> None:
        """A NUL or a lone surrogate is bad input, not a missing directory."""
        with pytest.raises(SpecificationError, match="cwd"):
            check_cwd(cwd)

    def test_a_closed_directory_is_refused(self, open_directory: Path) -> None:
        """A directory that the supervisor may not enter is PermissionError."""
        (open_directory / "closed").mkdir(mode=0o600)

        assert _errno_as_nobody(f"check_cwd({str(open_directory / 'closed')!r})") == errno.EACCES

    def test_effective_ids_decide(self, open_directory: Path) -> None:
        """A program that the user we act as may not run does not run, whoever we really are."""
        program = _program(open_directory / "tool", mode=0o700)

        assert _errno_as_nobody(f"find_command({str(program)!r}, {{}}, None)") == errno.EACCES


def _errno_as_nobody(call: str) -> int:
    """Give the errno of a call in a process that acts as a user to whom permissions apply."""
    script = (
        "import os\n"
        f"from {module.__name__} import check_cwd, find_command\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setegid(65534); os.seteuid(65534)\n"
        f"try: {call}\n"
        "except PermissionError as error: print(error.errno)\n"
        "os.seteuid(os.getuid())\n"  # coverage writes its file on the way out
    )
    root = Path(module.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.fixture(name="open_directory")
def _open_directory() -> Iterator[Path]:
    """Make a directory that other users can enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def test_examples_run() -> None:
    """The examples of the documentation do what they show."""
    assert doctest.testmod(module).failed == 0
