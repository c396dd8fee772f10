"""Log directories that the system does not allow."""

import errno
import os
import pickle
from pathlib import Path
from typing import Any

import pytest

from aioelastic._errors.exceptions import AioelasticError
from aioelastic._logs.destinations import LogDirectoryError
from aioelastic._logs.specs import DefaultLogsSpecs
from aioelastic._logs.std import Std
from tests.helpers.log_specs import ENVS, Refusal, attempt_directory, envs_of, plant, reify_as_nobody, tree


class TestRefusals:
    """What the system does not allow."""

    @pytest.mark.parametrize("place", ["logs", "logs/deeper/still"])
    def test_a_file_in_the_place_is_refused_at_once(self, tmp_path: Path, place: str) -> None:
        """A file in the place of log_dir, or on the way to it, is NotADirectoryError at once, with a remedy."""
        (tmp_path / "logs").write_text("")

        with pytest.raises(NotADirectoryError, match="give a log_dir") as caught:
            DefaultLogsSpecs(tmp_path / place)

        assert isinstance(caught.value, AioelasticError)
        assert isinstance(caught.value, LogDirectoryError)
        assert (caught.value.errno, caught.value.filename) == (errno.ENOTDIR, f"{tmp_path}/logs")

    @pytest.mark.parametrize("kind", ["file", "dangling"])
    def test_a_file_that_came_later_is_refused(self, tmp_path: Path, kind: str) -> None:
        """The same holds when the file, or a symlink to nothing, came after construction."""
        spec = DefaultLogsSpecs(tmp_path / "logs")
        plant(tmp_path / "logs", kind, tmp_path / "trap")

        with pytest.raises(NotADirectoryError, match="give a log_dir") as caught:
            spec.reify(ENVS)

        assert (caught.value.errno, caught.value.filename) == (errno.ENOTDIR, f"{tmp_path}/logs")
        assert tree(tmp_path) == ["logs"]

    def test_a_path_that_cannot_be_made(self) -> None:
        """A directory that the system does not make keeps its errno, without an endless attempt."""
        with pytest.raises(FileNotFoundError, match=r"ENOENT.*give a log_dir") as caught:
            DefaultLogsSpecs("/proc/no-such/logs").reify(ENVS)

        assert caught.value.filename == "/proc/no-such"

    def test_no_permission(self, open_directory: Path) -> None:
        """A log_dir that may not be written is PermissionError with the path."""
        told = reify_as_nobody(open_directory)

        assert told == f"LogDirectoryError {errno.EACCES} {open_directory}/job\n"

    def test_a_directory_of_our_own_that_is_closed_to_us(self, open_directory: Path) -> None:
        """A umask that closes our own directories to us ends in an error, not in siblings for ever."""
        open_directory.chmod(0o777)

        told = reify_as_nobody(open_directory, "os.umask(0o777)")

        assert told == f"LogDirectoryError {errno.EACCES} {open_directory}/job\n"
        assert tree(open_directory) == []

    def test_another_program_may_make_log_dir_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A log_dir that another program makes at that moment is as good as ours."""
        mkdir = os.mkdir

        def losing(name: str, *args: Any, **kwargs: Any) -> None:
            if name == f"{tmp_path}/logs":
                mkdir(name)
            mkdir(name, *args, **kwargs)

        monkeypatch.setattr(os, "mkdir", losing)

        assert attempt_directory(DefaultLogsSpecs(tmp_path / "logs").reify(ENVS)).is_dir()

    @pytest.mark.parametrize(
        ("function", "name"),
        [
            ("mkdir", "deeper"),
            ("open", "logs"),
            ("mkdir", "job"),
            ("open", "job"),
            ("mkdir", "attempt_0"),
            ("open", "attempt_0"),
            ("mkdir", "0"),
            ("open", "0"),
            ("mkdir", "1"),
            ("open", "1"),
            ("open", "stdout.log"),
            ("open", "stderr.log"),
        ],
    )
    @pytest.mark.parametrize("number", [errno.ENOSPC, errno.EMFILE])
    def test_a_failure_leaves_nothing(
        self, tmp_path: Path, refusal: Refusal, function: str, name: str, number: int
    ) -> None:
        """Whatever fails, all that was made is gone, and the error has the errno and the whole path."""
        log_dir = tmp_path / "logs/deeper" if name == "deeper" else tmp_path / "logs"
        refusal(function, name, number)

        with pytest.raises(LogDirectoryError) as caught:
            DefaultLogsSpecs(log_dir, Std.ALL).reify(ENVS)

        assert caught.value.errno == number
        assert Path(caught.value.filename).is_absolute()
        assert Path(caught.value.filename).name == name
        assert tree(tmp_path) == []

    def test_the_last_ranks_failure_takes_all_ranks_back(self, tmp_path: Path, refusal: Refusal) -> None:
        """Files and directories of the ranks before the one that failed are removed, and earlier runs stay."""
        earlier = DefaultLogsSpecs(tmp_path, Std.ALL).reify(ENVS)
        refusal("mkdir", "7", errno.ENOSPC)

        with pytest.raises(OSError, match="ENOSPC"):
            DefaultLogsSpecs(tmp_path, Std.ALL).reify(envs_of("job", 0, nprocs=8))

        assert [path.name for path in tmp_path.iterdir()] == ["job"]
        assert Path(earlier.stdouts[1]).is_file()

    def test_the_error_can_be_pickled(self, tmp_path: Path) -> None:
        """The error comes back from a pickle with its type, text and path."""
        (tmp_path / "logs").write_text("")
        with pytest.raises(LogDirectoryError) as caught:
            DefaultLogsSpecs(tmp_path / "logs")

        loaded = pickle.loads(pickle.dumps(caught.value))

        assert (type(loaded), str(loaded)) == (type(caught.value), str(caught.value))
        assert loaded.filename == caught.value.filename

    @pytest.mark.parametrize(
        ("number", "kind"),
        [
            (errno.ENOTDIR, NotADirectoryError),
            (errno.EACCES, PermissionError),
            (errno.EPERM, PermissionError),
            (errno.ENOENT, FileNotFoundError),
            (errno.EEXIST, FileExistsError),
            (errno.ENOSPC, OSError),
        ],
    )
    def test_the_error_is_the_systems_own(self, number: int, kind: type[OSError]) -> None:
        """The error is caught as the built-in one of its errno."""
        error = LogDirectoryError(OSError(number, os.strerror(number)), "/x")

        assert isinstance(error, kind)
        assert str(error) == (
            f"logs cannot be kept at '/x': [{errno.errorcode[number]} {number}] {os.strerror(number)}; "
            "give a log_dir that is, or can become, a directory that you may write to"
        )
