"""Which way each stream takes, decided before anything is opened."""

import os

import pytest

from aioelastic._logs.destinations import LogsDest
from aioelastic._logs.routes import RankRoutes, Route, Way, route_group


def route_one(dest: LogsDest, *, shown: bool = True, filtered: bool = False) -> RankRoutes:
    """Route a group of one rank."""
    (routes,) = route_group(dest, 1, None if shown else [], stdout_filtered=filtered, stderr_filtered=False)
    return routes


@pytest.mark.parametrize(
    ("redirected", "teed", "shown", "filtered", "expected"),
    [
        ("", "", True, "", Route(way=Way.INHERIT)),
        ("", "", False, "", Route(way=Way.DISCARD)),
        ("a", "", True, "", Route(way=Way.FILE, file="a")),
        ("a", "", False, "", Route(way=Way.FILE, file="a")),
        ("a", "a", True, "", Route(way=Way.PUMP, file="a", console=True)),
        ("", "a", True, "", Route(way=Way.PUMP, file="a", console=True)),
        ("a", "a", False, "", Route(way=Way.FILE, file="a")),
        ("a", "a", True, "f", Route(way=Way.PUMP, file="a", console=True, filtered="f")),
        ("a", "a", False, "f", Route(way=Way.PUMP, file="a", console=False, filtered="f")),
        ("", "", True, "f", Route(way=Way.INHERIT)),
        ("a", "", True, "f", Route(way=Way.FILE, file="a")),
        (os.devnull, "", True, "", Route(way=Way.DISCARD)),
        (os.devnull, os.devnull, True, "", Route(way=Way.PUMP, console=True)),
        (os.devnull, os.devnull, False, "", Route(way=Way.DISCARD)),
        ("a", "a", False, os.devnull, Route(way=Way.FILE, file="a")),
    ],
)
def test_each_combination_has_one_way(redirected: str, teed: str, shown: bool, filtered: str, expected: Route) -> None:
    """Only teed streams are pumped, and only where the console or a filtered copy wants them."""
    dest = LogsDest({0: redirected}, {}, {0: teed} if teed else {}, filtered_stdout=filtered)

    assert route_one(dest, shown=shown, filtered=bool(filtered)).stdout == expected


def test_streams_are_routed_by_themselves() -> None:
    """One stream's redirection says nothing about the other's."""
    routes = route_one(LogsDest({0: "out"}, {0: "err"}, {}, {0: "err"}))

    assert routes.stdout == Route(way=Way.FILE, file="out")
    assert routes.stderr == Route(way=Way.PUMP, file="err", console=True)
    assert list(routes) == [routes.stdout, routes.stderr]


def test_a_filtered_path_without_filters_is_not_used() -> None:
    """A destination for filtered lines does nothing as long as nobody filters."""
    dest = LogsDest({0: "a"}, {0: "b"}, {0: "a"}, {0: "b"}, filtered_stdout="f", filtered_stderr="g")

    routes = route_group(dest, 1, None, stdout_filtered=False, stderr_filtered=True)[0]

    assert routes.stdout.filtered == ""
    assert routes.stderr.filtered == "g"


def test_ranks_that_a_map_lacks_use_the_console() -> None:
    """A rank that no map names is inherited, whichever other ranks are named."""
    routes = route_group(LogsDest({1: "a"}), 3, None, stdout_filtered=False, stderr_filtered=False)

    assert [each.stdout.way for each in routes] == [Way.INHERIT, Way.FILE, Way.INHERIT]


def test_only_the_ranks_asked_for_are_shown() -> None:
    """A filter of ranks silences the others, and all of them when it is empty."""
    some = route_group(LogsDest(), 3, {1}, stdout_filtered=False, stderr_filtered=False)
    none = route_group(LogsDest(), 3, set(), stdout_filtered=False, stderr_filtered=False)

    assert [each.stdout.way for each in some] == [Way.DISCARD, Way.INHERIT, Way.DISCARD]
    assert {route.way for each in none for route in each} == {Way.DISCARD}


def test_no_ranks_have_no_routes() -> None:
    """An empty group is routed to nothing."""
    assert route_group(LogsDest(), 0, None, stdout_filtered=True, stderr_filtered=True) == []
