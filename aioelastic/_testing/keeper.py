"""The keeper: knows at each moment whose turn it is, a test's or a fixture's, and sees that what it started ends."""

import inspect
import re
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from inspect import isasyncgenfunction, iscoroutinefunction
from types import MethodType
from typing import Any, Final

import pytest

from aioelastic._launch import start_processes
from aioelastic._logs.std import Std
from aioelastic._testing.owner import LeftSomethingError, Owner, WatchedStart, owner_of_task
from aioelastic._testing.sections import describe_ranks
from aioelastic._testing.wrappers import closing_fixture, closing_test

FIXTURE: Final = "start_processes"
"""The fixture's name."""

_SIGNATURE: Final = inspect.signature(start_processes)


class Keeper:
    """A plugin of pytest's, there from the first use of the fixture on.

    Args:
        shutdown_timeout: Seconds that ranks have from the first signal to SIGKILL, unless a call says otherwise.
        directories: Makes the directories of the logs.
    """

    def __init__(self, shutdown_timeout: float, directories: pytest.TempPathFactory) -> None:
        self._shutdown_timeout = shutdown_timeout
        self._directories = directories
        self._nobody = Owner("session")
        self._turn = self._nobody
        self._fixtures: dict[pytest.FixtureDef[Any], Owner] = {}
        self._ended_fixtures: list[Owner] = []

    def start(self, *args: Any, **kwargs: Any) -> WatchedStart:
        """Do what `start_processes` does, with a log directory of pytest's, and for whoever awaits it."""
        owner = self._owner()
        given = {name for name, value in _SIGNATURE.bind(*args, **kwargs).arguments.items() if value is not None}
        if "logs_specs" not in given:
            if "log_dir" not in given:
                name = re.sub(r"\W", "_", owner.name)[:40]
                kwargs["log_dir"] = self._directories.mktemp(f"{name}-logs")
            if not given & {"redirects", "tee"}:
                kwargs["redirects"] = Std.ALL
        if "shutdown_timeout" not in given:
            kwargs["shutdown_timeout"] = self._shutdown_timeout
        plain = start_processes(*args, **kwargs)
        plain.close()  # its context is started by what knows the owner
        return WatchedStart(plain.context, owner, self._owner)

    def finish(self) -> None:
        """Close what belongs to no test and no fixture, at the end of all tests."""
        self._nobody.tear_down()

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # before other plugins look at what kind of function it is
    def pytest_fixture_setup(
        self, fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
    ) -> Generator[None, Any, Any]:
        """Let what a fixture starts live as long as the fixture."""
        owner = self._fixtures[fixturedef] = Owner(fixturedef.argname)

        def tear_down() -> None:
            self._ended_fixtures.append(self._fixtures.pop(fixturedef, owner))
            owner.tear_down()

        # The first one of its finalizers is the last one that runs.
        fixturedef.addfinalizer(tear_down)
        wrapped = FIXTURE in request.fixturenames and (
            iscoroutinefunction(fixturedef.func) or isasyncgenfunction(fixturedef.func)
        )
        with self._turn_of(owner), pytest.MonkeyPatch.context() as patch:
            if wrapped:
                patch.setattr(fixturedef, "func", _wrapped(fixturedef.func, closing_fixture, owner))
            return (yield)

    @pytest.hookimpl(wrapper=True, trylast=True)  # within what captures output
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        """Close what a test has started, while its event loop is there."""
        __tracebackhide__ = True
        owner = item.stash[_OWNER] = Owner(item.name)
        item.addfinalizer(owner.tear_down)
        with self._turn_of(owner), pytest.MonkeyPatch.context() as patch:
            if isinstance(item, pytest.Function) and FIXTURE in item.fixturenames:
                target, attribute = (item.obj.hypothesis, "inner_test") if _is_property(item) else (item, "obj")
                if iscoroutinefunction(function := getattr(target, attribute)):
                    patch.setattr(target, attribute, closing_test(function, owner))
            try:
                result = yield
            finally:
                owner.finish()
        # Of a test that has failed anyway the tear-down tells.
        owner.raise_problems()
        return result

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # after others have made it what it is
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Show what the ranks of a test that failed have written, and how they ended; also those of its fixtures."""
        report = yield
        if report.when == "call" and _OWNER not in item.stash:
            # It has asked for the fixture by `request`, as the first one: this plugin came when the call had begun.
            owner, self._nobody = self._nobody, Owner("session")
            self._turn = self._nobody
            item.stash[_OWNER] = owner
            item.addfinalizer(owner.tear_down)
        if call.excinfo is not None and call.excinfo.errisinstance(LeftSomethingError) and report.skipped:
            # Nobody who marks a test by xfail expects this.
            report.outcome = "failed"
            del report.wasxfail
        owners = [item.stash[_OWNER]] if _OWNER in item.stash else []
        owners += self._ended_fixtures
        self._ended_fixtures = []
        if report.when != "teardown":
            names = getattr(item, "fixturenames", ())
            owners += [owner for fixture, owner in reversed(self._fixtures.items()) if fixture.argname in names]
        if report.failed:
            report.sections += describe_ranks(kept.context for owner in owners for kept in owner.groups)
        if report.failed or report.when == "teardown":
            # Not twice; and items are there until the end of all tests, with all that they keep.
            item.stash[_OWNER] = Owner(item.name)
        return report

    def _owner(self) -> Owner:
        owner = owner_of_task()
        return self._turn if owner is None or owner.is_over else owner

    @contextmanager
    def _turn_of(self, owner: Owner) -> Iterator[None]:
        before, self._turn = self._turn, owner
        try:
            yield
        finally:
            self._turn = before


_OWNER: Final = pytest.StashKey[Owner]()


def _is_property(item: pytest.Function) -> bool:
    """Tell whether a test runs through hypothesis: once per example, each with a loop turn of its own."""
    return hasattr(getattr(item.obj, "hypothesis", None), "inner_test")


def _wrapped(function: Callable[..., Any], wrap: Callable[..., Callable[..., Any]], owner: Owner) -> Callable[..., Any]:
    """Wrap a function, or a method that stays bound to what it was bound to."""
    if isinstance(function, MethodType):
        return MethodType(wrap(function.__func__, owner), function.__self__)
    return wrap(function, owner)
