"""What becomes of the output of a group: specifications, and the directories and files they make."""

import copy
import doctest
import errno
import os
import pickle
import re
import stat
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from aioelastic._errors.exceptions import (
    AioelasticError,
    RanksError,
    SpecificationError,
    SpecificationTypeError,
)
from aioelastic._logs import destinations, specs
from aioelastic._logs.destinations import LogDirectoryError, LogsDest
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs, discard_unused
from aioelastic._logs.std import Std

ENVS = {0: {"TORCHELASTIC_RUN_ID": "job", "TORCHELASTIC_RESTART_COUNT": "0"}, 1: {}}


def _envs(run_id: object = "job", attempt: object = 0, nprocs: int = 1) -> dict[int, dict[str, Any]]:
    envs: dict[int, dict[str, Any]] = {rank: {} for rank in range(nprocs)}
    envs[0] = {"TORCHELASTIC_RUN_ID": run_id, "TORCHELASTIC_RESTART_COUNT": attempt}
    return envs


def _tree(root: Path) -> list[str]:
    return sorted(str(path.relative_to(root)) for path in root.rglob("*"))


def _directory(dest: LogsDest) -> Path:
    return Path(dest.filtered_stdout).parent


@pytest.fixture(name="elsewhere")
def _elsewhere(tmp_path: Path) -> Iterator[Path]:
    """Go to a directory of the test's own, and back."""
    before = Path.cwd()
    os.chdir(tmp_path)
    yield tmp_path
    os.chdir(before)


@pytest.fixture(name="temporary")
def _temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Let temporary directories be made in a directory of the test's own."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


class TestDestinations:
    """The value that `reify` gives."""

    def test_the_order_is_that_of_the_seed(self) -> None:
        """The fields are taken by position in the seed's order."""
        dest = LogsDest({0: "a"}, {0: "b"}, {0: "c"}, {0: "d"}, {0: "e"}, "f", "g")

        assert (dest.stdouts, dest.stderrs, dest.tee_stdouts, dest.tee_stderrs) == tuple({0: x} for x in "abcd")
        assert (dest.error_files, dest.filtered_stdout, dest.filtered_stderr) == ({0: "e"}, "f", "g")

    def test_everything_is_on_the_console_by_default(self) -> None:
        """Without arguments the maps are empty and separate, and the paths empty."""
        dest = LogsDest()

        assert dest == LogsDest({}, {}, {}, {}, {}, "", "")
        assert dest.stdouts is not LogsDest().stdouts

    def test_it_is_fixed(self) -> None:
        """A field cannot be put in another's place."""
        with pytest.raises(AttributeError):
            LogsDest().filtered_stdout = "x"  # type: ignore[misc]


class Plain(LogsSpecs):
    """A specification as a user writes one."""

    def reify(self, envs: Mapping[int, Mapping[str, Any]]) -> LogsDest:
        """Send everything to the console."""
        return LogsDest(dict.fromkeys(envs, ""))

    @property
    def root_log_dir(self) -> str | None:
        """The directory asked for."""
        return self.log_dir


class TestSpecifications:
    """What every specification holds."""

    def test_it_is_abstract(self) -> None:
        """The base is not made by itself, and both of its parts are asked for."""
        assert LogsSpecs.__abstractmethods__ == {"reify", "root_log_dir"}
        with pytest.raises(TypeError, match="abstract"):
            LogsSpecs()  # type: ignore[abstract]

    def test_the_defaults(self) -> None:
        """Without arguments nothing is redirected, teed or silenced."""
        plain = Plain()

        assert (plain.log_dir, plain.root_log_dir) == (None, None)
        assert (plain.redirects, plain.tee, plain.local_ranks_filter) == (Std.NONE, Std.NONE, None)

    def test_the_arguments_are_copied(self) -> None:
        """What the caller does to the arguments later, or to what is read from it, changes nothing."""
        redirects, tee, ranks = {0: Std.OUT}, {1: Std.ERR}, {0}
        plain = Plain("/x", redirects, tee, ranks)

        redirects[0] = tee[1] = Std.NONE
        ranks.add(9)
        plain.redirects[5] = Std.OUT  # type: ignore[index]
        plain.tee[5] = Std.OUT  # type: ignore[index]

        assert (plain.redirects, plain.tee) == ({0: Std.OUT}, {1: Std.ERR})
        assert plain.local_ranks_filter == frozenset({0})
        assert isinstance(plain.local_ranks_filter, frozenset)

    @pytest.mark.parametrize("name", ["redirects", "tee", "local_ranks_filter", "log_dir", "root_log_dir"])
    def test_the_attributes_are_read_only(self, name: str) -> None:
        """An attribute cannot be set."""
        with pytest.raises(AttributeError):
            setattr(DefaultLogsSpecs(), name, None)

    @pytest.mark.parametrize(
        ("arguments", "name"),
        [
            ({"redirects": "3"}, "redirects"),
            ({"redirects": None}, "redirects"),
            ({"tee": {0: True}}, "tee"),
            ({"tee": 4}, "tee"),
            ({"local_ranks_filter": "0"}, "local_ranks_filter"),
            ({"local_ranks_filter": 0}, "local_ranks_filter"),
            ({"local_ranks_filter": [True]}, "local_ranks_filter"),
            ({"local_ranks_filter": ["0"]}, "local_ranks_filter"),
            ({"local_ranks_filter": [-1]}, "local_ranks_filter"),
            ({"log_dir": b"/x"}, "log_dir"),
            ({"log_dir": 3}, "log_dir"),
            ({"log_dir": ""}, "log_dir"),
            ({"log_dir": "/x\0"}, "log_dir"),
            ({"log_dir": "/x\ud800"}, "log_dir"),
        ],
    )
    def test_bad_arguments_are_named(self, arguments: dict[str, Any], name: str) -> None:
        """An argument that cannot be used is told by name, before anything exists."""
        with pytest.raises(SpecificationError, match=name):
            Plain(**arguments)

    def test_plain_integers_are_masks(self) -> None:
        """The integers of the masks are made masks."""
        assert repr(Plain(None, 3, {0: 1})) == (  # type: ignore[arg-type, dict-item]
            "Plain(log_dir=None, redirects=Std.ALL, tee={0: Std.OUT}, local_ranks_filter=None)"
        )

    def test_it_says_what_it_is(self, elsewhere: Path) -> None:
        """The repr shows what was asked for, with the directory as it will be used."""
        shown = repr(DefaultLogsSpecs("logs", {1: Std.ERR}, Std.ALL, {2, 0}))

        assert shown == (
            f"DefaultLogsSpecs(log_dir='{elsewhere}/logs', redirects={{1: Std.ERR}}, tee=Std.ALL, "
            "local_ranks_filter=[0, 2])"
        )


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
        assert _tree(tmp_path) == [
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

        assert _tree(temporary) == []

    def test_missing_directories_are_made(self, tmp_path: Path) -> None:
        """All that is missing of log_dir is made."""
        spec = DefaultLogsSpecs(tmp_path / "a/b/c")

        assert _directory(spec.reify({0: {}})).is_dir()
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
        assert _directory(dest).is_dir()

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

        dest = spec.reify(_envs("job", 0))
        root = spec.root_log_dir
        spec.reify(_envs("job", 1))

        assert root is not None
        assert spec.root_log_dir == root
        assert Path(root).parent == temporary
        assert stat.S_IMODE(Path(root).stat().st_mode) == 0o700
        assert dest.stdouts[0] == f"{root}/job/attempt_0/0/stdout.log"
        assert {path.name for path in Path(root, "job").iterdir()} == {"attempt_0", "attempt_1"}

    @pytest.mark.parametrize("replaced", [False, True])
    def test_one_that_was_cleaned_away_is_made_anew(self, temporary: Path, replaced: bool) -> None:
        """When a cleaner removed it, another one is made, and what came in its place is not trusted."""
        spec = DefaultLogsSpecs()
        attempt = _directory(spec.reify(ENVS))
        first = Path(spec.root_log_dir or "")
        first.rename(temporary / "moved")
        if replaced:
            (temporary / "trap").mkdir()
            first.symlink_to("trap")

        second = _directory(spec.reify(ENVS))

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

    def test_a_failure_leaves_none(self, temporary: Path, refusal: "Refusal") -> None:
        """A reify that fails removes the temporary directory that it made."""
        refusal("open", "stderr.log", errno.ENOSPC)
        spec = DefaultLogsSpecs(redirects=Std.ALL)

        with pytest.raises(LogDirectoryError):
            spec.reify(ENVS)

        assert spec.root_log_dir is None
        assert _tree(temporary) == []

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
        assert _tree(temporary) == []

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
        dest = DefaultLogsSpecs(tmp_path).reify(_envs(run_id, attempt))

        assert _directory(dest) == tmp_path / path

    def test_other_ranks_do_not_count(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Neither another rank's variables nor the supervisor's own name the run."""
        monkeypatch.setenv("TORCHELASTIC_RUN_ID", "ours")
        monkeypatch.setenv("TORCHELASTIC_RESTART_COUNT", "9")

        dest = DefaultLogsSpecs(tmp_path).reify({1: {"TORCHELASTIC_RUN_ID": "job"}, 0: {}})

        assert re.fullmatch(r"run-[0-9]{8}-[0-9]{6}-[0-9a-f]{6}", _directory(dest).parent.name)
        assert _directory(dest).name == "attempt_0"

    @pytest.mark.parametrize("env", [{}, {"TORCHELASTIC_RUN_ID": None}])
    def test_a_missing_name_is_fresh_each_time(self, tmp_path: Path, env: dict[str, None]) -> None:
        """Two runs without a name have two directories."""
        spec = DefaultLogsSpecs(tmp_path)

        runs = {_directory(spec.reify({0: env})).parent.name for _ in range(3)}

        assert len(runs) == 3

    @pytest.mark.parametrize("run_id", ["", ".", "..", "a/b", "/", "../x", "a\0", "\ud800", "x" * 201, "é" * 101])
    def test_impossible_names_are_refused(self, tmp_path: Path, run_id: str) -> None:
        """A name that is no part of a path is refused, with the variable and the rule, and makes nothing."""
        with pytest.raises(SpecificationError, match=r"TORCHELASTIC_RUN_ID of rank 0 .*bytes without '/'"):
            DefaultLogsSpecs(tmp_path / "logs").reify(_envs(run_id))

        assert _tree(tmp_path) == []

    @pytest.mark.parametrize(
        "attempt", ["", "-1", -1, "1.0", "a", " 1", "1\n", "+1", "../0", "\u0663", "9" * 201, 10**300]
    )
    def test_impossible_numbers_are_refused(self, tmp_path: Path, attempt: object) -> None:
        """A count that counts nothing is refused, with the variable."""
        with pytest.raises(SpecificationError, match="TORCHELASTIC_RESTART_COUNT of rank 0"):
            DefaultLogsSpecs(tmp_path / "logs").reify(_envs("job", attempt))

        assert _tree(tmp_path) == []

    @pytest.mark.parametrize("variable", ["TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT"])
    @pytest.mark.parametrize("value", [True, 1.5, b"1", ["1"]])
    def test_other_types_are_refused(self, tmp_path: Path, variable: str, value: object) -> None:
        """Names and numbers of other types are a TypeError."""
        with pytest.raises(SpecificationTypeError, match=f"{variable} of rank 0"):
            DefaultLogsSpecs(tmp_path).reify({0: {variable: value}})

    def test_a_number_too_large_to_write(self, tmp_path: Path) -> None:
        """A number of which Python makes no text is refused like other impossible ones."""
        with pytest.raises(SpecificationError, match="TORCHELASTIC_RUN_ID of rank 0"):
            DefaultLogsSpecs(tmp_path).reify(_envs(10**5000))


class TestRanks:
    """The ranks that a specification names."""

    @pytest.mark.parametrize(
        ("arguments", "name", "extra"),
        [
            ({"tee": {0: Std.OUT, 2: Std.OUT}}, "tee", (2,)),
            ({"redirects": {-1: Std.OUT, "0": Std.OUT}}, "redirects", (-1, "0")),
            ({"local_ranks_filter": {7, 0, 2}}, "local_ranks_filter", (2, 7)),
        ],
    )
    def test_they_must_exist(
        self, tmp_path: Path, arguments: dict[str, Any], name: str, extra: tuple[object, ...]
    ) -> None:
        """A rank that does not exist is told with the argument that names it, before anything is made."""
        spec = DefaultLogsSpecs(tmp_path / "logs", **arguments)

        with pytest.raises(RanksError, match=name) as caught:
            spec.reify(ENVS)

        assert (caught.value.argument, caught.value.extra, caught.value.missing) == (name, extra, ())
        assert _tree(tmp_path) == []

    @pytest.mark.parametrize(
        ("envs", "missing", "extra"),
        [({1: {}}, (0,), (1,)), ({0: {}, True: {}}, (1,), (True,)), ({"0": {}}, (0,), ("0",))],
    )
    def test_the_variables_are_those_of_the_ranks(
        self, tmp_path: Path, envs: Any, missing: tuple[int, ...], extra: tuple[object, ...]
    ) -> None:
        """Variables of anything but the ranks 0..n-1 are refused."""
        with pytest.raises(RanksError, match="envs") as caught:
            DefaultLogsSpecs(tmp_path).reify(envs)

        assert (caught.value.missing, caught.value.extra) == (missing, extra)

    @pytest.mark.parametrize("envs", [None, [{}], {0: None}, {0: [("A", "1")]}])
    def test_the_variables_are_maps(self, tmp_path: Path, envs: Any) -> None:
        """What is no map of maps is a TypeError."""
        with pytest.raises(SpecificationTypeError, match="envs"):
            DefaultLogsSpecs(tmp_path).reify(envs)

    @pytest.mark.parametrize("ranks", [set(), [1, 0, 1], range(2), {0: "x"}.keys()])
    def test_any_collection_filters(self, tmp_path: Path, ranks: Any) -> None:
        """Ranks may be given as any collection; none at all silences everybody and is not the same as no filter."""
        spec = DefaultLogsSpecs(tmp_path, local_ranks_filter=ranks)

        spec.reify(ENVS)

        assert spec.local_ranks_filter == frozenset(ranks)


class TestClaims:
    """What was there before is left alone."""

    def test_a_used_attempt_makes_a_sibling(self, tmp_path: Path) -> None:
        """A run whose attempt exists takes the next free sibling, and no file of the earlier ones changes."""
        first = DefaultLogsSpecs(tmp_path, Std.OUT).reify(ENVS)
        Path(first.stdouts[0]).write_text("precious")

        others = [_directory(DefaultLogsSpecs(tmp_path, Std.OUT).reify(ENVS)) for _ in range(3)]

        assert [path.relative_to(tmp_path).parts for path in others] == [(f"job.{n}", "attempt_0") for n in (2, 3, 4)]
        assert Path(first.stdouts[0]).read_text() == "precious"

    def test_an_empty_attempt_counts_as_used(self, tmp_path: Path) -> None:
        """An attempt's directory is never shared, not even an empty one."""
        (tmp_path / "job/attempt_0").mkdir(parents=True)

        assert _directory(DefaultLogsSpecs(tmp_path).reify(ENVS)) == tmp_path / "job.2/attempt_0"

    def test_a_free_attempt_of_a_known_run_is_taken(self, tmp_path: Path) -> None:
        """Another attempt of a run goes beside the earlier ones, through another object too."""
        DefaultLogsSpecs(tmp_path).reify(_envs("job", 0))

        assert _directory(DefaultLogsSpecs(tmp_path).reify(_envs("job", 1))) == tmp_path / "job/attempt_1"

    def test_later_attempts_stay_with_their_run(self, tmp_path: Path) -> None:
        """The attempts of one run through one object are together, even when the first name has room again."""
        DefaultLogsSpecs(tmp_path).reify(_envs("job", 0))
        spec = DefaultLogsSpecs(tmp_path)

        attempts = [_directory(spec.reify(_envs("job", number))) for number in (0, 1, 2)]
        other = _directory(spec.reify(_envs("other", 0)))

        assert attempts == [tmp_path / f"job.2/attempt_{number}" for number in (0, 1, 2)]
        assert other == tmp_path / "other/attempt_0"

    def test_a_chosen_place_that_is_taken_moves_on(self, tmp_path: Path) -> None:
        """When the next attempt's place in the chosen directory is taken, the search goes on behind it."""
        DefaultLogsSpecs(tmp_path).reify(_envs("job", 0))
        spec = DefaultLogsSpecs(tmp_path)
        spec.reify(_envs("job", 0))
        (tmp_path / "job.2/attempt_1").mkdir()

        assert _directory(spec.reify(_envs("job", 1))) == tmp_path / "job.3/attempt_1"
        assert _directory(spec.reify(_envs("job", 2))) == tmp_path / "job.3/attempt_2"

    def test_a_chosen_place_that_was_removed_is_made_again(self, tmp_path: Path) -> None:
        """An attempt after its run's directory was removed gets the same directory."""
        DefaultLogsSpecs(tmp_path).reify(_envs("job", 0))
        spec = DefaultLogsSpecs(tmp_path)
        discard_unused(spec.reify(_envs("job", 0)))

        assert _directory(spec.reify(_envs("job", 1))) == tmp_path / "job.2/attempt_1"

    @pytest.mark.parametrize("kind", ["file", "symlink", "dangling"])
    @pytest.mark.parametrize("place", ["job", "job/attempt_0"])
    def test_nothing_planted_is_followed(self, tmp_path: Path, place: str, kind: str) -> None:
        """A file or symlink in the place of a run or an attempt is passed over, and nothing is made behind it."""
        trap = tmp_path / "trap"
        trap.mkdir()
        planted = tmp_path / "logs" / place
        planted.parent.mkdir(parents=True)
        _plant(planted, kind, trap)

        dest = DefaultLogsSpecs(tmp_path / "logs", Std.ALL).reify(ENVS)

        assert _directory(dest) == tmp_path / "logs/job.2/attempt_0"
        assert Path(dest.stdouts[0]).is_file()
        assert _tree(trap) == []
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
                _plant(planted, kind, trap)

        monkeypatch.setattr(os, "mkdir", planting)
        with pytest.raises(FileExistsError) as caught:
            DefaultLogsSpecs(tmp_path, Std.ALL).reify(ENVS)

        assert caught.value.filename == str(planted)
        assert _tree(trap) == []
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

        assert _tree(trap) == []

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
        root = Path(specs.__file__).parents[2]
        racers = [
            subprocess.Popen(
                [sys.executable, "-c", script],
                cwd=root,
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

        assert _directory(DefaultLogsSpecs(tmp_path).reify(ENVS)) == tmp_path / "job.2/attempt_0"

    def test_somebody_elses_run_is_passed_over(self, open_directory: Path) -> None:
        """A run's directory that belongs to another user makes the run take a sibling."""
        (open_directory / "job").mkdir(mode=0o755)
        open_directory.chmod(0o777)

        assert _reify_as_nobody(open_directory) == f"{open_directory}/job.2/attempt_0/error\n"


def _plant(planted: Path, kind: str, trap: Path) -> None:
    if kind == "file":
        planted.write_text("planted")
    elif kind == "symlink":
        planted.symlink_to(trap)
    else:
        planted.symlink_to(trap / "new")


Refusal = Callable[[str, str, int], None]


@pytest.fixture(name="refusal")
def _refusal(monkeypatch: pytest.MonkeyPatch) -> Refusal:
    """Let one of the system's calls fail for one name."""

    def refuse(function: str, name: str, number: int) -> None:
        real = getattr(os, function)

        def refusing(path: str, *args: Any, **kwargs: Any) -> Any:
            if Path(path).name == name:
                raise OSError(number, os.strerror(number), path)
            return real(path, *args, **kwargs)

        monkeypatch.setattr(os, function, refusing)

    return refuse


@pytest.fixture(name="open_directory")
def _open_directory() -> Iterator[Path]:
    """Make a directory that other users can enter, which pytest's own are not."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        path.chmod(0o755)
        yield path


def _reify_as_nobody(log_dir: Path, prepare: str = "") -> str:
    """Tell where a run goes, or what stops it, in a process that acts as a user to whom permissions apply."""
    script = (
        "import os\n"
        "from aioelastic._logs.specs import DefaultLogsSpecs\n"
        "if os.geteuid() == 0: os.setgroups([]); os.setegid(65534); os.seteuid(65534)\n"
        f"{prepare}\n"
        "envs = {0: {'TORCHELASTIC_RUN_ID': 'job'}}\n"
        f"try: print(os.path.dirname(DefaultLogsSpecs({str(log_dir)!r}).reify(envs).filtered_stdout) + '/error')\n"
        "except PermissionError as error: print(type(error).__mro__[1].__name__, error.errno, error.filename)\n"
        "os.seteuid(os.getuid())\n"  # coverage writes its file on the way out
    )
    root = Path(specs.__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout


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
        _plant(tmp_path / "logs", kind, tmp_path / "trap")

        with pytest.raises(NotADirectoryError, match="give a log_dir") as caught:
            spec.reify(ENVS)

        assert (caught.value.errno, caught.value.filename) == (errno.ENOTDIR, f"{tmp_path}/logs")
        assert _tree(tmp_path) == ["logs"]

    def test_a_path_that_cannot_be_made(self) -> None:
        """A directory that the system does not make keeps its errno, without an endless attempt."""
        with pytest.raises(FileNotFoundError, match=r"ENOENT.*give a log_dir") as caught:
            DefaultLogsSpecs("/proc/no-such/logs").reify(ENVS)

        assert caught.value.filename == "/proc/no-such"

    def test_no_permission(self, open_directory: Path) -> None:
        """A log_dir that may not be written is PermissionError with the path."""
        told = _reify_as_nobody(open_directory)

        assert told == f"LogDirectoryError {errno.EACCES} {open_directory}/job\n"

    def test_a_directory_of_our_own_that_is_closed_to_us(self, open_directory: Path) -> None:
        """A umask that closes our own directories to us ends in an error, not in siblings for ever."""
        open_directory.chmod(0o777)

        told = _reify_as_nobody(open_directory, "os.umask(0o777)")

        assert told == f"LogDirectoryError {errno.EACCES} {open_directory}/job\n"
        assert _tree(open_directory) == []

    def test_another_program_may_make_log_dir_meanwhile(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """A log_dir that another program makes at that moment is as good as ours."""
        mkdir = os.mkdir

        def losing(name: str, *args: Any, **kwargs: Any) -> None:
            if name == f"{tmp_path}/logs":
                mkdir(name)
            mkdir(name, *args, **kwargs)

        monkeypatch.setattr(os, "mkdir", losing)

        assert _directory(DefaultLogsSpecs(tmp_path / "logs").reify(ENVS)).is_dir()

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
        assert _tree(tmp_path) == []

    def test_the_last_ranks_failure_takes_all_ranks_back(self, tmp_path: Path, refusal: Refusal) -> None:
        """Files and directories of the ranks before the one that failed are removed, and earlier runs stay."""
        earlier = DefaultLogsSpecs(tmp_path, Std.ALL).reify(ENVS)
        refusal("mkdir", "7", errno.ENOSPC)

        with pytest.raises(OSError, match="ENOSPC"):
            DefaultLogsSpecs(tmp_path, Std.ALL).reify(_envs("job", 0, nprocs=8))

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


class TestDiscarding:
    """What a group that failed to start leaves."""

    def test_unused_logs_go(self, tmp_path: Path) -> None:
        """Empty logs and all directories up to the run's go, log_dir itself stays; a second time does no harm."""
        dest = DefaultLogsSpecs(tmp_path / "logs", Std.OUT, {1: Std.ERR}).reify(ENVS)
        Path(dest.filtered_stdout).touch()

        discard_unused(dest)
        discard_unused(dest)

        assert _tree(tmp_path) == ["logs"]

    def test_a_group_without_ranks_goes_too(self, tmp_path: Path) -> None:
        """The directory of an empty group is removed as well."""
        discard_unused(DefaultLogsSpecs(tmp_path).reify({}))

        assert _tree(tmp_path) == []

    @pytest.mark.parametrize("name", ["stdouts", "error_files", "filtered_stdout", "filtered_stderr"])
    def test_content_stays(self, tmp_path: Path, name: str) -> None:
        """A file with content stays with the directories above it; empty files beside it go."""
        dest = DefaultLogsSpecs(tmp_path, Std.ALL).reify(ENVS)
        value = getattr(dest, name)
        kept = Path(value if isinstance(value, str) else value[0])
        kept.write_text("x")

        discard_unused(dest)

        assert [path for path in tmp_path.rglob("*") if path.is_file()] == [kept]
        assert not (_directory(dest) / "1").exists()

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
        spec.reify(_envs("job", 0))

        discard_unused(spec.reify(_envs("job", 1)))

        assert _tree(tmp_path) == ["job", "job/attempt_0", "job/attempt_0/0"]

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
        before = _tree(tmp_path)
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

        assert _tree(tmp_path) == before

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
        before = _tree(tmp_path / "moved")

        discard_unused(dest)

        assert (tmp_path / "moved").exists()
        assert _tree(tmp_path / "moved") == before
        assert swapped.is_symlink()


@pytest.mark.parametrize("module", [destinations, specs], ids=lambda module: str(module.__name__))
def test_examples_run(module: Any, temporary: Path) -> None:
    """The examples of the documentation do what they show."""
    assert doctest.testmod(module).failed == 0
