"""The keys of per-rank maps, and the size of a group."""

from types import MappingProxyType

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioelastic._errors.exceptions import RanksError, SpecificationTypeError
from aioelastic._processes.command_line import group_size, require_ranks


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
