"""The program that a rank would run, and the directory that it would run in."""

import errno
import socket
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._processes import command_line as module
from aioelastic._processes.command_line import check_cwd, find_command
from tests.helpers.arguments import Place
from tests.helpers.nobody import said_by_nobody


def _program(path: Path, mode: int = 0o755) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("#!/bin/sh\nexit 0\n")
    path.chmod(mode)
    return path


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
    said = said_by_nobody(
        f"from {module.__name__} import check_cwd, find_command",
        f"try: {call}\nexcept PermissionError as error: print(error.errno)",
    )
    return int(said)
