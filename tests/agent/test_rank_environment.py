"""What each rank is told of its place."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioelastic._agent.rank_environment import rank_arguments, rank_prefix, rank_variables
from aioelastic._agent.rendezvous import WorldInfo
from aioelastic._agent.worker_spec import WorkerSpec
from aioelastic._errors.exceptions import SpecificationError

WORLD: Final = WorldInfo(
    group_rank=1,
    group_world_size=3,
    base_rank=2,
    world_size=6,
    master_addr="head",
    master_port=29500,
    run_id="job",
)
SPEC: Final = WorkerSpec(entrypoint="true", local_world_size=2, role="trainer", max_restarts=5)


def variables(
    local_rank: int = 1, *, attempt: int = 4, inherited: dict[str, str] | None = None, **changed: Any
) -> dict[str, Any]:
    """Give the variables of a rank, for a run that differs from the usual."""
    return rank_variables(replace(SPEC, **changed), WORLD, local_rank, attempt, inherited or {})


class TestVariables:
    """The variables of torchrun."""

    def test_all_of_them(self) -> None:
        """A rank on the second of three nodes knows its numbers in all three counts, and where the first rank is."""
        assert variables() == {
            "LOCAL_RANK": "1",
            "RANK": "3",
            "GROUP_RANK": "1",
            "ROLE_RANK": "3",
            "ROLE_NAME": "trainer",
            "LOCAL_WORLD_SIZE": "2",
            "WORLD_SIZE": "6",
            "GROUP_WORLD_SIZE": "3",
            "ROLE_WORLD_SIZE": "6",
            "MASTER_ADDR": "head",
            "MASTER_PORT": "29500",
            "TORCHELASTIC_RESTART_COUNT": "4",
            "TORCHELASTIC_MAX_RESTARTS": "5",
            "TORCHELASTIC_RUN_ID": "job",
            "TORCHELASTIC_USE_AGENT_STORE": "False",
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": "1",
            "OMP_NUM_THREADS": "1",
        }

    def test_a_given_address_wins_over_the_world(self) -> None:
        """What the run says of the first rank's host and port holds, and brackets go."""
        told = variables(master_addr="[fd00::1]", master_port=1)

        assert (told["MASTER_ADDR"], told["MASTER_PORT"]) == ("fd00::1", "1")

    @pytest.mark.parametrize("name", ["OMP_NUM_THREADS", "TORCH_NCCL_ASYNC_ERROR_HANDLING"])
    @pytest.mark.parametrize("value", ["7", "", None])
    def test_what_is_set_is_not_preset(self, name: str, value: str | None) -> None:
        """A variable that is inherited stays inherited, and one that the run sets or removes stays so."""
        assert variables(envs={name: value})[name] == value
        if value is not None:
            assert name not in variables(inherited={name: value})

    def test_a_single_rank_has_all_threads(self) -> None:
        """One rank per node may use all of its CPUs."""
        assert "OMP_NUM_THREADS" not in variables(0, local_world_size=1)

    def test_the_place_wins_over_the_users_variables(self) -> None:
        """Variables of the run's own reach the rank, but none that says its place."""
        told = variables(
            envs={"RANK": "99", "WORLD_SIZE": None, "MASTER_ADDR": "elsewhere", "DATA": Path("/data"), "TERM": None}
        )

        assert (told["RANK"], told["WORLD_SIZE"], told["MASTER_ADDR"]) == ("3", "6", "head")
        assert (told["DATA"], told["TERM"]) == (Path("/data"), None)

    def test_nothing_given_is_changed(self) -> None:
        """The run's variables are read, and each rank has a map of its own."""
        envs = {"A": "1"}
        variables(envs=envs)["A"] = "2"

        assert envs == {"A": "1"}


class TestOwnDevice:
    """Ranks that see one device each, and call it the first."""

    @pytest.mark.parametrize(
        ("own", "inherited", "seen"),
        [
            ({}, {}, ["0", "1"]),
            ({}, {"CUDA_VISIBLE_DEVICES": "4, 7"}, ["4", "7"]),
            ({}, {"CUDA_VISIBLE_DEVICES": "GPU-a,GPU-b,GPU-c"}, ["GPU-a", "GPU-b"]),
            ({"CUDA_VISIBLE_DEVICES": "3,2"}, {"CUDA_VISIBLE_DEVICES": "4,7"}, ["3", "2"]),
            ({"CUDA_VISIBLE_DEVICES": None}, {"CUDA_VISIBLE_DEVICES": "4"}, ["0", "1"]),
            ({}, {"CUDA_VISIBLE_DEVICES": ""}, ["", ""]),
        ],
    )
    def test_each_has_its_entry_of_the_list(
        self, own: dict[str, str | None], inherited: dict[str, str], seen: list[str]
    ) -> None:
        """The list is the run's own, or the inherited one, or all; an empty one hides all devices from all ranks."""
        told = [variables(rank, virtual_local_rank=True, envs=own, inherited=inherited) for rank in (0, 1)]

        assert [each["CUDA_VISIBLE_DEVICES"] for each in told] == seen
        assert [(each["LOCAL_RANK"], each["RANK"]) for each in told] == [("0", "2"), ("0", "3")]

    @pytest.mark.parametrize("envs", [{"CUDA_VISIBLE_DEVICES": "5"}, {"CUDA_VISIBLE_DEVICES": 5}])
    def test_a_list_that_is_too_short_is_refused(self, envs: dict[str, str | int]) -> None:
        """Two ranks cannot have one device each of one."""
        with pytest.raises(SpecificationError, match=r"rank 1 is to see one device .* lists 1: list one for each rank"):
            variables(1, virtual_local_rank=True, envs=envs)

    def test_otherwise_the_list_is_left_alone(self) -> None:
        """Ranks that see all devices inherit the list."""
        assert "CUDA_VISIBLE_DEVICES" not in variables(inherited={"CUDA_VISIBLE_DEVICES": "4"})


class TestArguments:
    """A rank's number in its arguments."""

    def test_only_the_number_is_filled_in(self) -> None:
        """All else that looks like a variable is the program's own affair, and what is no text stays what it is."""
        path = Path("${local_rank}")
        args = ("--out=${local_rank}/${local_rank}", "$local_rank $$ ${x} $HOME", b"${local_rank}", path, 3)

        assert rank_arguments(args, 7) == ("--out=7/7", *args[1:])

    def test_a_single_text_is_one_argument(self) -> None:
        """As everywhere, text is no row of letters."""
        assert rank_arguments("${local_rank}", 0) == ("0",)

    @given(st.text("${}local_rank "), st.integers(0, 99))
    def test_text_without_the_word_is_untouched(self, text: str, rank: int) -> None:
        """Whatever it is: dollars and braces mean nothing by themselves."""
        assert rank_arguments([text], rank) == (text.replace("${local_rank}", str(rank)),)


class TestPrefixes:
    """What stands before a rank's lines."""

    def test_the_usual_one_is_role_and_local_rank(self) -> None:
        """As with torchrun."""
        assert rank_prefix(None, "default", 5, 0) == "[default0]:"

    @pytest.mark.parametrize(
        ("template", "prefix"),
        [
            ("[${role_name}-${local_rank}/${rank}]:", "[${rank}-1/5]:"),
            ("$rank: ", "5: "),
            ("${rank", "${rank"),
            ("${other} $$", "${other} $"),
            ("", ""),
        ],
    )
    def test_a_template_is_filled_in_once(self, template: str, prefix: str) -> None:
        """A role that looks like a word of the template is not one, and unknown words stay."""
        assert rank_prefix(template, "${rank}", 5, 1) == prefix
