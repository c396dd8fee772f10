"""The variables of a rank."""

import os
import subprocess
from collections import OrderedDict
from enum import Enum
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelastic._errors.exceptions import SpecificationError, SpecificationTypeError
from aioelastic._processes.command_line import rank_environment
from tests.helpers.arguments import LIMIT, PASSABLE, SECRET, Number, Place, Word

NAMES = st.text(st.characters(exclude_characters="=\0", exclude_categories=["Cs"]), min_size=1)
VALUES = st.one_of(PASSABLE, st.integers(), st.floats(), st.none(), PASSABLE.map(Path))


class BrokenPath:
    """A path that fails."""

    def __fspath__(self) -> str:
        """Fail."""
        raise RuntimeError(SECRET)


class Level(int, Enum):
    """A number that prints as its name."""

    THREE = 3


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
