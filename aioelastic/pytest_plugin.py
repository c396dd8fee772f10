"""The pytest plugin: the fixture `start_processes`.

pytest imports this module at its start wherever the library is installed, so it imports nothing else before the fixture
is used; all that it does then is in `aioelastic._testing`.
"""

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from aioelastic._launch import start_processes as _start_processes
    from aioelastic._testing.keeper import Keeper

SHUTDOWN_OPTION: Final = "aioelastic_shutdown_timeout"
"""The option in the user's configuration file."""

SHUTDOWN_TIMEOUT: Final = 5.0
"""Seconds from the first signal to SIGKILL in tests; the library's own 30 are for a service's last work."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option of the configuration file."""
    parser.addini(
        SHUTDOWN_OPTION,
        "seconds that ranks of the fixture start_processes have from the first signal to SIGKILL",
        default=str(SHUTDOWN_TIMEOUT),
    )


def pytest_configure(config: pytest.Config) -> None:
    """Refuse a value that cannot be used, before any test runs."""
    _shutdown_timeout(config)


class StartProcesses:
    """What the fixture ``start_processes`` is: the function of that name, for tests; to annotate it with.

    Its arguments are those of `aioelastic.start_processes`, and it is used in the same ways. Three of them have other
    defaults:

    * ``log_dir`` is a directory below pytest's temporary one.
    * ``redirects`` is ``Std.ALL`` if neither ``redirects`` nor ``tee`` is given, so that a report can show the lines.
    * ``shutdown_timeout`` is the option ``aioelastic_shutdown_timeout``, 5 seconds if that is not set.

    Example:
        >>> async def test_a_worker_ends_well(start_processes: StartProcesses) -> None:
        ...     context = await start_processes("job", "true", args={0: (), 1: ()})
        ...     assert not (await context.wait()).is_failed()
    """

    def __init__(self, keeper: "Keeper") -> None:
        self._keeper = keeper

    if TYPE_CHECKING:
        __call__ = staticmethod(_start_processes)
    else:

        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            """Start a group that belongs to the test or the fixture that awaits it."""
            return self._keeper.start(*args, **kwargs)

    def __repr__(self) -> str:
        return "<fixture start_processes of aioelastic>"


@pytest.fixture(scope="session")
def start_processes(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StartProcesses]:
    """Start groups of processes that end with the test, or with the fixture, that has started them.

    It is `aioelastic.start_processes`. Who awaits it owns the group: a group of a test is closed when the test is over,
    whatever became of it, and one of a fixture when that fixture is, after its own tear-down, each in its event loop.
    So it has the widest scope itself, and serves fixtures of every scope.
    """
    from aioelastic._testing.keeper import Keeper  # noqa: PLC0415 - the rest of the library, only when it is used

    keeper = Keeper(_shutdown_timeout(pytestconfig), tmp_path_factory)
    # It stays until the end: the last report is made when this fixture is gone.
    pytestconfig.pluginmanager.register(keeper)
    yield StartProcesses(keeper)
    keeper.finish()


def _shutdown_timeout(config: pytest.Config) -> float:
    """Give the value of the option.

    Raises:
        pytest.UsageError: It is no number of seconds.
    """
    text = str(config.getini(SHUTDOWN_OPTION))
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    if not 0 <= seconds < math.inf:
        raise pytest.UsageError(
            f"{SHUTDOWN_OPTION} is {text!r}: give a number of seconds, such as 2.5; 0 kills at once"
        )
    return seconds
