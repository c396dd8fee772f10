"""What becomes of the output of a group: what a specification and the destinations that it gives hold."""

import doctest
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from aioelastic._errors.exceptions import RanksError, SpecificationError, SpecificationTypeError
from aioelastic._logs import destinations, specs
from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.specs import DefaultLogsSpecs, LogsSpecs
from aioelastic._logs.std import Std
from tests.helpers.log_specs import ENVS, tree


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
        assert tree(tmp_path) == []

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


@pytest.mark.parametrize("module", [destinations, specs], ids=lambda module: str(module.__name__))
def test_examples_run(module: Any, temporary: Path) -> None:
    """The examples of the documentation do what they show."""
    assert doctest.testmod(module).failed == 0
