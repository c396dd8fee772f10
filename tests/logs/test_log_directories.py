"""The directories and files of a group's logs: their layout, their names, and what stands for a log_dir."""

import copy
import errno
import os
import pickle
import re
import stat
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import MappingProxyType

import pytest

from aioelastic._errors.exceptions import RanksError, SpecificationError, SpecificationTypeError
from aioelastic._logs.destinations import LogDirectoryError, LogsDest
from aioelastic._logs.specs import DefaultLogsSpecs
from aioelastic._logs.std import Std
from tests.helpers.log_specs import ENVS, Refusal, attempt_directory, envs_of, tree


class TestLayout:
    """The paths that the default specification gives."""

    def test_the_whole_layout(self, tmp_path: Path) -> None:
        """Redirected and teed streams have files, others the console, and every rank an error file."""
        spec = DefaultLogsSpecs(tmp_path / "logs", redirects={0: Std.OUT}, tee={1: Std.ERR})

        dest = spec.reify({0: {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "7"}, 1: {}, 2: {}})

        attempt = f"{tmp_path}/logs/job/attempt_7"
        assert dest == LogsDest(
            stdouts={0: f"{attempt}/0/stdout.log", 1: "", 2: ""},
            stderrs={0: "", 1: f"{attempt}/1/stderr.log", 2: ""},
            tee_stdouts={},
            tee_stderrs={1: f"{attempt}/1/stderr.log"},
            error_files={rank: f"{attempt}/{rank}/error.json" for rank in range(3)},
            filtered_stdout=f"{attempt}/filtered_stdout.log",
            filtered_stderr=f"{attempt}/filtered_stderr.log",
        )
        assert tree(tmp_path) == [
            "logs",
            "logs/job",
            "logs/job/attempt_7",
            "logs/job/attempt_7/0",
            "logs/job/attempt_7/0/stdout.log",
            "logs/job/attempt_7/1",
            "logs/job/attempt_7/1/stderr.log",
            "logs/job/attempt_7/2",
        ]

    @pytest.mark.parametrize("redirects", [Std.NONE, Std.OUT, Std.ERR, Std.ALL])
    @pytest.mark.parametrize("tee", [Std.NONE, Std.OUT, Std.ERR, Std.ALL])
    def test_streams_decide(self, tmp_path: Path, redirects: Std, tee: Std) -> None:
        """A stream has a file exactly when it is redirected or teed, and is teed only when asked to be."""
        dest = DefaultLogsSpecs(tmp_path, redirects, tee).reify({0: {}})

        for stream, paths, teed in (
            (Std.OUT, dest.stdouts, dest.tee_stdouts),
            (Std.ERR, dest.stderrs, dest.tee_stderrs),
        ):
            assert bool(paths[0]) is (stream in redirects | tee)
            assert Path(paths[0]).is_file() is (stream in redirects | tee)
            assert teed == ({0: paths[0]} if stream in tee else {})

    def test_files_are_new_empty_and_ours(self, tmp_path: Path) -> None:
        """Log files are empty, and with a usual umask others may read but not write them."""
        before = os.umask(0o022)
        try:
            dest = DefaultLogsSpecs(tmp_path, Std.ALL).reify({0: {}})
        finally:
            os.umask(before)

        status = Path(dest.stdouts[0]).stat()
        assert (stat.S_IMODE(status.st_mode), status.st_size) == (0o644, 0)

    def test_the_umask_counts(self, tmp_path: Path) -> None:
        """A strict umask is kept to, and a loose one makes no file that others may write."""
        before = os.umask(0o077)
        try:
            strict = DefaultLogsSpecs(tmp_path, Std.OUT).reify({0: {}})
            os.umask(0)
            loose = DefaultLogsSpecs(tmp_path, Std.OUT).reify({0: {}})
        finally:
            os.umask(before)

        assert stat.S_IMODE(Path(strict.stdouts[0]).stat().st_mode) == 0o600
        assert stat.S_IMODE(Path(loose.stdouts[0]).stat().st_mode) == 0o644

    def test_nothing_is_made_before_reify(self, temporary: Path) -> None:
        """Making a specification touches nothing."""
        DefaultLogsSpecs(temporary / "logs")
        DefaultLogsSpecs()

        assert tree(temporary) == []

    def test_missing_directories_are_made(self, tmp_path: Path) -> None:
        """All that is missing of log_dir is made."""
        spec = DefaultLogsSpecs(tmp_path / "a/b/c")

        assert attempt_directory(spec.reify({0: {}})).is_dir()
        assert spec.root_log_dir == f"{tmp_path}/a/b/c"

    def test_a_relative_directory_is_the_one_of_the_beginning(self, elsewhere: Path) -> None:
        """Changing the directory later moves no logs."""
        (elsewhere / "sub").mkdir()
        spec = DefaultLogsSpecs("./logs/", Std.OUT)

        os.chdir("sub")
        dest = spec.reify(ENVS)

        assert spec.root_log_dir == f"{elsewhere}/logs"
        assert dest.stdouts[1] == f"{elsewhere}/logs/job/attempt_0/1/stdout.log"
        assert Path(dest.stdouts[1]).is_file()

    def test_the_way_through_a_symlink_stays(self, elsewhere: Path) -> None:
        """A log_dir back out of a symlink is where the kernel goes; log_dir itself may be a symlink."""
        (elsewhere / "far/deep").mkdir(parents=True)
        (elsewhere / "link").symlink_to("far/deep")

        DefaultLogsSpecs("link/..").reify(ENVS)
        DefaultLogsSpecs("link").reify(ENVS)

        assert (elsewhere / "far/job/attempt_0").is_dir()
        assert (elsewhere / "far/deep/job/attempt_0").is_dir()

    def test_a_directory_that_is_gone(self, tmp_path: Path) -> None:
        """A relative log_dir in a working directory that was removed is told as such."""
        before = Path.cwd()
        gone = tmp_path / "gone"
        gone.mkdir()
        os.chdir(gone)
        gone.rmdir()
        try:
            with pytest.raises(FileNotFoundError, match="logs cannot be kept at 'logs'"):
                DefaultLogsSpecs("logs")
        finally:
            os.chdir(before)

    def test_no_ranks_are_a_group(self, tmp_path: Path) -> None:
        """An empty group has its directory, for filtered copies, and nothing in it."""
        dest = DefaultLogsSpecs(tmp_path, Std.ALL).reify({})

        assert dest == LogsDest(filtered_stdout=dest.filtered_stdout, filtered_stderr=dest.filtered_stderr)
        assert attempt_directory(dest).is_dir()

    def test_what_is_given_stays(self, tmp_path: Path) -> None:
        """The variables are only read, so that read-only maps do, and the environment of the supervisor stays."""
        envs = copy.deepcopy(ENVS)
        ours = dict(os.environ)

        DefaultLogsSpecs(tmp_path, Std.ALL).reify(MappingProxyType({k: MappingProxyType(v) for k, v in envs.items()}))
        DefaultLogsSpecs(tmp_path, Std.ALL).reify(envs)

        assert envs == ENVS
        assert dict(os.environ) == ours


class TestTemporary:
    """Logs without a log_dir."""

    def test_it_is_private_and_made_once(self, temporary: Path) -> None:
        """The first reify makes a directory that nobody else can enter; later ones use it."""
        spec = DefaultLogsSpecs(tee=Std.OUT)
        assert spec.root_log_dir is None
        assert "None" in repr(spec)

        dest = spec.reify(envs_of("job", 0))
        root = spec.root_log_dir
        spec.reify(envs_of("job", 1))

        assert root is not None
        assert spec.root_log_dir == root
        assert Path(root).parent == temporary
        assert stat.S_IMODE(Path(root).stat().st_mode) == 0o700
        assert dest.stdouts[0] == f"{root}/job/attempt_0/0/stdout.log"
        assert {path.name for path in Path(root, "job").iterdir()} == {"attempt_0", "attempt_1"}

    def test_groups_that_start_at_the_same_time_share_one(self, temporary: Path) -> None:
        """Whoever of several threads is the first to need it makes it, and the others use that."""
        for number in range(20):
            spec = DefaultLogsSpecs(redirects=Std.ALL)
            with ThreadPoolExecutor(4) as threads:
                dests = list(threads.map(spec.reify, [envs_of("job")] * 4))

            assert len(list(temporary.iterdir())) == number + 1
            assert {Path(dest.filtered_stdout).parts[-3] for dest in dests} == {"job", "job.2", "job.3", "job.4"}

    def test_a_copy_knows_it(self, temporary: Path) -> None:
        """A specification travels by pickle, with the places that it has chosen."""
        spec = DefaultLogsSpecs(tee=Std.OUT)
        spec.reify(envs_of("job", 0))

        copied = pickle.loads(pickle.dumps(spec))
        copied.reify(envs_of("job", 1))

        assert (copied.root_log_dir, copied.tee) == (spec.root_log_dir, Std.OUT)
        assert len(list(temporary.iterdir())) == 1

    @pytest.mark.parametrize("replaced", [False, True])
    def test_one_that_was_cleaned_away_is_made_anew(self, temporary: Path, replaced: bool) -> None:
        """When a cleaner removed it, another one is made, and what came in its place is not trusted."""
        spec = DefaultLogsSpecs()
        attempt = attempt_directory(spec.reify(ENVS))
        first = Path(spec.root_log_dir or "")
        first.rename(temporary / "moved")
        if replaced:
            (temporary / "trap").mkdir()
            first.symlink_to("trap")

        second = attempt_directory(spec.reify(ENVS))

        assert attempt.name == second.name
        assert spec.root_log_dir not in {None, str(first)}
        assert second.is_relative_to(spec.root_log_dir or "")

    @pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory away")
    @pytest.mark.usefixtures("temporary")
    def test_one_of_another_owner_is_not_trusted(self) -> None:
        """A directory that somebody else made at the name of the one cleaned away gets no logs."""
        spec = DefaultLogsSpecs()
        spec.reify(ENVS)
        first = spec.root_log_dir or ""
        os.chown(first, 65534, 65534)

        spec.reify(ENVS)

        assert spec.root_log_dir not in {None, first}

    def test_a_failure_leaves_none(self, temporary: Path, refusal: Refusal) -> None:
        """A reify that fails removes the temporary directory that it made."""
        refusal("open", "stderr.log", errno.ENOSPC)
        spec = DefaultLogsSpecs(redirects=Std.ALL)

        with pytest.raises(LogDirectoryError):
            spec.reify(ENVS)

        assert spec.root_log_dir is None
        assert tree(temporary) == []

    def test_no_temporary_directory_at_all(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """A system without a place for temporary files is told as an error of the logs."""
        monkeypatch.setattr(tempfile, "tempdir", "/proc/no-such")

        with pytest.raises(FileNotFoundError, match="logs cannot be kept"):
            DefaultLogsSpecs().reify(ENVS)


class TestNowhere:
    """Logs in /dev/null."""

    @pytest.mark.parametrize("log_dir", [os.devnull, Path(os.devnull), "/dev//null"])
    def test_there_are_no_files(self, log_dir: str, temporary: Path) -> None:
        """Files are /dev/null, the console stays the console, and nothing is made."""
        spec = DefaultLogsSpecs(log_dir, redirects={0: Std.OUT}, tee={1: Std.ERR})

        dest = spec.reify({0: {"TORCHELASTIC_RUN_ID": "a/b"}, 1: {}, 2: {}})

        assert dest == LogsDest(
            {0: os.devnull, 1: "", 2: ""},
            {0: "", 1: os.devnull, 2: ""},
            {},
            {1: os.devnull},
            {0: "", 1: "", 2: ""},
        )
        assert spec.root_log_dir == os.devnull
        assert tree(temporary) == []

    def test_ranks_are_checked_all_the_same(self) -> None:
        """A map that names a rank that does not exist is refused without files too."""
        with pytest.raises(RanksError, match="tee"):
            DefaultLogsSpecs(os.devnull, tee={3: Std.OUT}).reify({0: {}})


class TestNames:
    """The names of runs and attempts."""

    @pytest.mark.parametrize(
        ("run_id", "attempt", "path"),
        [
            ("job", "0", "job/attempt_0"),
            (42, 3, "42/attempt_3"),
            ("job", "007", "job/attempt_7"),
            ("none", None, "none/attempt_0"),
            ("a b\n.", "1", "a b\n./attempt_1"),
            ("...", "1", ".../attempt_1"),
            ("\udcff", "1", "\udcff/attempt_1"),
            ("x" * 200, "1", f"{'x' * 200}/attempt_1"),
        ],
    )
    def test_they_come_from_rank_0(self, tmp_path: Path, run_id: object, attempt: object, path: str) -> None:
        """Rank 0's variables name the run and the attempt, as text or as numbers."""
        dest = DefaultLogsSpecs(tmp_path).reify(envs_of(run_id, attempt))

        assert attempt_directory(dest) == tmp_path / path

    def test_other_ranks_do_not_count(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither another rank's variables nor the supervisor's own name the run."""
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "ours")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "9")

        dest = DefaultLogsSpecs(tmp_path).reify({1: {"TORCHELASTIC_RUN_ID": "job"}, 0: {}})

        assert re.fullmatch(r"run-[0-9]{8}-[0-9]{6}-[0-9a-f]{6}", attempt_directory(dest).parent.name)
        assert attempt_directory(dest).name == "attempt_0"

    @pytest.mark.parametrize("env", [{}, {"TORCHELASTIC_RUN_ID": None}])
    def test_a_missing_name_is_fresh_each_time(self, tmp_path: Path, env: dict[str, None]) -> None:
        """Two runs without a name have two directories."""
        spec = DefaultLogsSpecs(tmp_path)

        runs = {attempt_directory(spec.reify({0: env})).parent.name for _ in range(3)}

        assert len(runs) == 3

    @pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "/", "../x", "a\0", "\ud800", "x" * 201, "é" * 101])
    def test_impossible_names_are_refused(self, tmp_path: Path, run_id: str) -> None:
        """A name that is no part of a path is refused, with the variable and the rule, and makes nothing."""
        with pytest.raises(SpecificationError, match=r"TORCHELASTIC_RUN_ID of rank 0 .*bytes without '/'"):
            DefaultLogsSpecs(tmp_path / "logs").reify(envs_of(run_id))

        assert tree(tmp_path) == []

    @pytest.mark.parametrize(
        "attempt", ["", "-1", -1, "1.0", "a", " 1", "1\n", "+1", "../0", "\u0663", "9" * 201, 10**300]
    )
    def test_impossible_numbers_are_refused(self, tmp_path: Path, attempt: object) -> None:
        """A count that counts nothing is refused, with the variable."""
        with pytest.raises(SpecificationError, match="TORCHELASTIC_RESTART_COUNT of rank 0"):
            DefaultLogsSpecs(tmp_path / "logs").reify(envs_of("job", attempt))

        assert tree(tmp_path) == []

    @pytest.mark.parametrize("variable", ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"])
    @pytest.mark.parametrize("value", [True, 1.5, b"1", ["1"]])
    def test_other_types_are_refused(self, tmp_path: Path, variable: str, value: object) -> None:
        """Names and numbers of other types are a TypeError."""
        with pytest.raises(SpecificationTypeError, match=f"{variable} of rank 0"):
            DefaultLogsSpecs(tmp_path).reify({0: {variable: value}})

    def test_a_number_too_large_to_write(self, tmp_path: Path) -> None:
        """A number of which Python makes no text is refused like other impossible ones."""
        with pytest.raises(SpecificationError, match="TORCHELASTIC_RUN_ID of rank 0"):
            DefaultLogsSpecs(tmp_path).reify(envs_of(10**5000))
