"""What goes, and what stays, of the logs of a group that failed to start."""

import os
from pathlib import Path

import pytest

from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.specs import DefaultLogsSpecs, discard_unused
from aioelastic._logs.std import Std
from tests.helpers.log_specs import ENVS, attempt_directory, envs_of, tree


class TestDiscarding:
    """What a group that failed to start leaves."""

    def test_unused_logs_go(self, tmp_path: Path) -> None:
        """Empty logs and all directories up to the run's go, log_dir itself stays; a second time does no harm."""
        dest = DefaultLogsSpecs(tmp_path / "logs", Std.OUT, {1: Std.ERR}).reify(ENVS)
        Path(dest.filtered_stdout).touch()

        discard_unused(dest)
        discard_unused(dest)

        assert tree(tmp_path) == ["logs"]

    def test_a_group_without_ranks_goes_too(self, tmp_path: Path) -> None:
        """The directory of an empty group is removed as well."""
        discard_unused(DefaultLogsSpecs(tmp_path).reify({}))

        assert tree(tmp_path) == []

    @pytest.mark.parametrize("name", ["stdouts", "error_files", "filtered_stdout", "filtered_stderr"])
    def test_content_stays(self, tmp_path: Path, name: str) -> None:
        """A file with content stays with the directories above it; empty files beside it go."""
        dest = DefaultLogsSpecs(tmp_path, Std.ALL).reify(ENVS)
        value = getattr(dest, name)
        kept = Path(value if isinstance(value, str) else value[0])
        kept.write_text("x")

        discard_unused(dest)

        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]
        assert not (attempt_directory(dest) / "1").exists()

    @pytest.mark.parametrize(
        "place", ["job/attempt_0/0/mine", "job/attempt_0/mine", "job/mine", "job/attempt_0/0/error.json"]
    )
    def test_files_of_others_stay(self, tmp_path: Path, place: str) -> None:
        """A file that is no log of ours stays, empty or not, and so does what it is in."""
        dest = DefaultLogsSpecs(tmp_path, Std.ALL).reify(ENVS)
        (tmp_path / place).touch()

        discard_unused(dest)

        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [tmp_path / place]

    def test_earlier_attempts_stay(self, tmp_path: Path) -> None:
        """Only the attempt of these destinations is removed."""
        spec = DefaultLogsSpecs(tmp_path)
        spec.reify(envs_of("job", 0))

        discard_unused(spec.reify(envs_of("job", 1)))

        assert tree(tmp_path) == ["job", "job/attempt_0", "job/attempt_0/0"]

    def test_files_elsewhere_stay(self, tmp_path: Path) -> None:
        """Paths of another layout, as a user's own specification gives them, are not touched."""
        for name in (
            "out.log",
            "0/stdout.log",
            "attempt_0/1/stdout.log",
            "attempt_0/0/other.log",
            "filtered_stdout.log",
        ):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).touch()
        (tmp_path / "empty").mkdir()
        before = tree(tmp_path)
        at = str(tmp_path)

        for path in (
            "out.log",
            "0/stdout.log",
            "attempt_0/1/stdout.log",
            "attempt_0/0/other.log",
            "empty/attempt_0/0/x",
        ):
            discard_unused(LogsDest({0: f"{at}/{path}"}, {}, {}, {}, {0: f"{at}/{path}"}, f"{at}/filtered_stdout.log"))
        discard_unused(LogsDest({0: os.devnull, 1: ""}, {}, {}, {}, {0: ""}))
        discard_unused(LogsDest())

        assert tree(tmp_path) == before

    def test_what_is_no_file_stays(self, tmp_path: Path) -> None:
        """A pipe that somebody put in the place of a log is not ours to remove."""
        dest = DefaultLogsSpecs(tmp_path, Std.ALL).reify(ENVS)
        pipe = Path(dest.stdouts[0])
        pipe.unlink()
        os.mkfifo(pipe)

        discard_unused(dest)

        assert pipe.is_fifo()

    @pytest.mark.parametrize("place", ["job/attempt_0", "job/attempt_0/0", "job/attempt_0/0/stdout.log"])
    def test_symlinks_are_not_followed(self, tmp_path: Path, place: str) -> None:
        """What a symlink put in the place of ours leads to is not touched."""
        dest = DefaultLogsSpecs(tmp_path / "logs", Std.ALL).reify(ENVS)
        swapped = tmp_path / "logs" / place
        swapped.rename(tmp_path / "moved")
        swapped.symlink_to(tmp_path / "moved")
        before = tree(tmp_path / "moved")

        discard_unused(dest)

        assert (tmp_path / "moved").exists()
        assert tree(tmp_path / "moved") == before
        assert swapped.is_symlink()
