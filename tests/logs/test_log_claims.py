"""Log directories in places that are taken: by earlier runs, by other programs, by files and symlinks."""

import os
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from aioelastic._logs.destinations import LogDirectoryError
from aioelastic._logs.specs import DefaultLogsSpecs, discard_unused
from aioelastic._logs.std import Std
from tests.helpers.drivers import ROOT
from tests.helpers.log_specs import ENVS, attempt_directory, envs_of, plant, reify_as_nobody, tree
from tests.helpers.programs import PYTHON


class TestClaims:
    """What was there before is left alone."""

    def test_a_used_attempt_makes_a_sibling(self, tmp_path: Path) -> None:
        """A run whose attempt exists takes the next free sibling, and no file of the earlier ones changes."""
        first = DefaultLogsSpecs(tmp_path, Std.OUT).reify(ENVS)
        Path(first.stdouts[0]).write_text("precious")

        others = [attempt_directory(DefaultLogsSpecs(tmp_path, Std.OUT).reify(ENVS)) for _ in range(3)]

        assert [path.relative_to(tmp_path).parts for path in others] == [(f"job.{n}", "attempt_0") for n in (2, 3, 4)]
        assert Path(first.stdouts[0]).read_text() == "precious"

    def test_an_empty_attempt_counts_as_used(self, tmp_path: Path) -> None:
        """An attempt's directory is never shared, not even an empty one."""
        (tmp_path / "job/attempt_0").mkdir(parents=True)

        assert attempt_directory(DefaultLogsSpecs(tmp_path).reify(ENVS)) == tmp_path / "job.2/attempt_0"

    def test_a_free_attempt_of_a_known_run_is_taken(self, tmp_path: Path) -> None:
        """Another attempt of a run goes beside the earlier ones, through another object too."""
        DefaultLogsSpecs(tmp_path).reify(envs_of("job", 0))

        assert attempt_directory(DefaultLogsSpecs(tmp_path).reify(envs_of("job", 1))) == tmp_path / "job/attempt_1"

    def test_later_attempts_stay_with_their_run(self, tmp_path: Path) -> None:
        """The attempts of one run through one object are together, even when the first name has room again."""
        DefaultLogsSpecs(tmp_path).reify(envs_of("job", 0))
        spec = DefaultLogsSpecs(tmp_path)

        attempts = [attempt_directory(spec.reify(envs_of("job", number))) for number in (0, 1, 2)]
        other = attempt_directory(spec.reify(envs_of("other", 0)))

        assert attempts == [tmp_path / f"job.2/attempt_{number}" for number in (0, 1, 2)]
        assert other == tmp_path / "other/attempt_0"

    def test_a_chosen_place_that_is_taken_moves_on(self, tmp_path: Path) -> None:
        """When the next attempt's place in the chosen directory is taken, the search goes on behind it."""
        DefaultLogsSpecs(tmp_path).reify(envs_of("job", 0))
        spec = DefaultLogsSpecs(tmp_path)
        spec.reify(envs_of("job", 0))
        (tmp_path / "job.2/attempt_1").mkdir()

        assert attempt_directory(spec.reify(envs_of("job", 1))) == tmp_path / "job.3/attempt_1"
        assert attempt_directory(spec.reify(envs_of("job", 2))) == tmp_path / "job.3/attempt_2"

    def test_a_chosen_place_that_was_removed_is_made_again(self, tmp_path: Path) -> None:
        """An attempt after its run's directory was removed gets the same directory."""
        DefaultLogsSpecs(tmp_path).reify(envs_of("job", 0))
        spec = DefaultLogsSpecs(tmp_path)
        discard_unused(spec.reify(envs_of("job", 0)))

        assert attempt_directory(spec.reify(envs_of("job", 1))) == tmp_path / "job.2/attempt_1"

    @pytest.mark.parametrize("kind", ["file", "symlink", "dangling"])
    @pytest.mark.parametrize("place", ["job", "job/attempt_0"])
    def test_nothing_planted_is_followed(self, tmp_path: Path, place: str, kind: str) -> None:
        """A file or symlink in the place of a run or an attempt is passed over, and nothing is made behind it."""
        trap = tmp_path / "trap"
        trap.mkdir()
        planted = tmp_path / "logs" / place
        planted.parent.mkdir(parents=True)
        plant(planted, kind, trap)

        dest = DefaultLogsSpecs(tmp_path / "logs", Std.ALL).reify(ENVS)

        assert attempt_directory(dest) == tmp_path / "logs/job.2/attempt_0"
        assert Path(dest.stdouts[0]).is_file()
        assert tree(trap) == []
        assert planted.is_symlink() or planted.is_file()

    @pytest.mark.parametrize("kind", ["file", "symlink", "dangling"])
    @pytest.mark.parametrize("place", ["0", "0/stdout.log"])
    def test_nothing_planted_meanwhile_is_followed(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str, kind: str
    ) -> None:
        """What is planted for a rank while its attempt is being made is an error, and nothing is made behind it."""
        trap = tmp_path / "trap"
        trap.mkdir()
        planted = tmp_path / "job/attempt_0" / place
        mkdir = os.mkdir

        def planting(name: str, *args: Any, **kwargs: Any) -> None:
            mkdir(name, *args, **kwargs)
            if name == planted.parent.name:
                plant(planted, kind, trap)

        monkeypatch.setattr(os, "mkdir", planting)
        with pytest.raises(FileExistsError) as caught:
            DefaultLogsSpecs(tmp_path, Std.ALL).reify(ENVS)

        assert caught.value.filename == str(planted)
        assert tree(trap) == []
        assert planted.is_symlink() or planted.is_file()

    @pytest.mark.parametrize("place", ["job", "job/attempt_0", "job/attempt_0/0"])
    def test_a_directory_swapped_for_a_symlink_is_not_entered(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
    ) -> None:
        """A directory that was made and then swapped for a symlink leads no file elsewhere."""
        trap = tmp_path / "trap"
        trap.mkdir()
        swapped = tmp_path / "logs" / place
        mkdir = os.mkdir

        def swapping(name: str, *args: Any, **kwargs: Any) -> None:
            mkdir(name, *args, **kwargs)
            if name == swapped.name and not swapped.is_symlink():
                swapped.rename(tmp_path / "moved")
                swapped.symlink_to(trap)

        monkeypatch.setattr(os, "mkdir", swapping)
        with suppress(LogDirectoryError):
            DefaultLogsSpecs(tmp_path / "logs", Std.ALL).reify(ENVS)

        assert tree(trap) == []

    def test_programs_that_race_get_different_places(self, tmp_path: Path) -> None:
        """Two programs that start the same run at the same moment never share a directory."""
        script = (
            "import sys\n"
            "from aioelastic._logs.specs import DefaultLogsSpecs\n"
            "from aioelastic._logs.std import Std\n"
            "print('ready', flush=True)\n"
            "sys.stdin.readline()\n"
            "for number in range(50):\n"
            "    envs = {0: {'TORCHELASTIC_RUN_ID': f'job{number}'}}\n"
            f"    print(DefaultLogsSpecs({str(tmp_path)!r}, Std.ALL).reify(envs).stdouts[0])\n"
        )
        racers = [
            subprocess.Popen(
                [PYTHON, "-c", script],
                cwd=ROOT,
                text=True,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
            )
            for _ in range(2)
        ]
        for racer in racers:
            assert racer.stdout is not None
            assert racer.stdout.readline() == "ready\n"
        for racer in racers:
            assert racer.stdin is not None
            racer.stdin.write("go\n")
            racer.stdin.flush()

        taken = [line for racer in racers for line in racer.communicate()[0].split()]

        assert [racer.returncode for racer in racers] == [0, 0]
        assert len(taken) == len(set(taken)) == 100
        assert {Path(line).relative_to(tmp_path).parts[0] for line in taken} == {
            f"job{number}{sibling}" for number in range(50) for sibling in ("", ".2")
        }

    def test_a_directory_removed_in_between_is_no_end(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A run's directory that another program takes back at that moment makes the run go on to a sibling."""
        mkdir = os.mkdir

        def removing(name: str, *args: Any, **kwargs: Any) -> None:
            mkdir(name, *args, **kwargs)
            if name == "job":
                (tmp_path / "job").rmdir()

        monkeypatch.setattr(os, "mkdir", removing)

        assert attempt_directory(DefaultLogsSpecs(tmp_path).reify(ENVS)) == tmp_path / "job.2/attempt_0"

    def test_somebody_elses_run_is_passed_over(self, open_directory: Path) -> None:
        """A run's directory that belongs to another user makes the run take a sibling."""
        (open_directory / "job").mkdir(mode=0o755)
        open_directory.chmod(0o777)

        assert reify_as_nobody(open_directory) == f"{open_directory}/job.2/attempt_0/error\n"
