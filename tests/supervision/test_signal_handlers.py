"""Handlers that are installed for a while: shared, put back, and harmless where nobody listens any more."""

import asyncio
import itertools
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from aioelastic._supervision.signal_handlers import Listening
from tests.helpers.drivers import LOOPS, run_driver

each_loop = pytest.mark.parametrize("loop", LOOPS)

LISTENS = """
import threading
from aioelastic._supervision.signal_handlers import Listening

def listener(loop, heard):
    def hear(number):
        if loop.is_closed():
            return False
        loop.call_soon_threadsafe(heard.set)
        return True
    return hear
"""
"""Begins a driver that has ``listener``."""


@pytest.fixture(autouse=True)
def own_handler() -> Iterator[list[int]]:
    """Have SIGUSR1 handled by a function that notes it; it must be in force again after the test."""
    heard: list[int] = []

    def own(number: int, _: FrameType | None) -> None:
        heard.append(number)

    before = signal.signal(signal.SIGUSR1, own)
    yield heard
    found = signal.signal(signal.SIGUSR1, before)
    assert found is own


def notes(heard: list[int], *, takes: bool = True) -> Callable[[int], bool]:
    """Make a listener that notes what it hears, and takes it or not."""

    def note(number: int) -> bool:
        heard.append(number)
        return takes

    return note


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
async def test_all_listen_until_they_leave_in_any_order(own_handler: list[int], order: tuple[int, ...]) -> None:
    """Each of three hears what comes while it listens, and the one before them all hears the rest."""
    heard: list[list[int]] = [[], [], []]
    listening = [Listening([signal.SIGUSR1], notes(each)) for each in heard]
    for each in order:
        signal.raise_signal(signal.SIGUSR1)
        listening[each].close()
    signal.raise_signal(signal.SIGUSR1)

    assert [len(heard[each]) for each in order] == [1, 2, 3]
    assert own_handler == [signal.SIGUSR1]


async def test_a_listener_that_cannot_take_it_leaves_it_to_the_others(own_handler: list[int]) -> None:
    """Only when none of them can is the signal the former handler's."""
    deaf: list[int] = []
    heard: list[int] = []
    first = Listening([signal.SIGUSR1], notes(deaf, takes=False))
    second = Listening([signal.SIGUSR1], notes(heard))
    signal.raise_signal(signal.SIGUSR1)
    assert (len(deaf), len(heard), own_handler) == (1, 1, [])
    second.close()
    signal.raise_signal(signal.SIGUSR1)
    assert own_handler == [signal.SIGUSR1]
    first.close()


async def test_what_somebody_else_installs_meanwhile_is_theirs(own_handler: list[int]) -> None:
    """A handler installed over ours stays; when ours is put back too late, it gives way to the former one."""
    heard: list[int] = []
    theirs: list[int] = []
    listening = Listening([signal.SIGUSR1], notes(heard))
    ours = signal.signal(signal.SIGUSR1, lambda number, _: theirs.append(number))
    signal.raise_signal(signal.SIGUSR1)
    listening.close()
    signal.raise_signal(signal.SIGUSR1)
    assert (theirs, heard, own_handler) == ([signal.SIGUSR1] * 2, [], [])

    signal.signal(signal.SIGUSR1, ours)
    signal.raise_signal(signal.SIGUSR1)
    assert (heard, own_handler) == ([], [signal.SIGUSR1])


async def test_ours_that_is_found_again_is_used_again(own_handler: list[int]) -> None:
    """Where somebody has put ours back after its time, the next one to listen hears, and leaves the former one."""
    heard: list[int] = []
    listening = Listening([signal.SIGUSR1], notes([]))
    ours = signal.getsignal(signal.SIGUSR1)
    listening.close()
    signal.signal(signal.SIGUSR1, ours)
    listening = Listening([signal.SIGUSR1], notes(heard))
    signal.raise_signal(signal.SIGUSR1)
    listening.close()

    assert (heard, own_handler) == ([signal.SIGUSR1], [])


async def test_a_signal_that_cannot_be_handled_undoes_the_rest(own_handler: list[int]) -> None:
    """When one cannot be installed, none is."""
    with pytest.raises(OSError, match="Invalid argument"):
        Listening([signal.SIGUSR1, signal.SIGKILL], notes([]))

    assert own_handler == []


@each_loop
def test_a_signal_that_another_thread_is_given_wakes_the_loop(loop: str) -> None:
    """Where the main thread blocks a signal, the system gives it to another one; a sleeping loop hears all the same."""
    program = f"""{LISTENS}
async def main():
    end = threading.Event()
    thread = threading.Thread(target=end.wait)
    thread.start()
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR1])
    heard = asyncio.Event()
    for overlapping in range(3):
        all_listening = [Listening([signal.SIGUSR1], listener(asyncio.get_running_loop(), heard))
                         for _ in range(overlapping + 1)]
        for listening in all_listening:
            killer = await asyncio.create_subprocess_exec("sh", "-c", "sleep 0.1; kill -USR1 $PPID; exec sleep 60")
            await asyncio.wait_for(heard.wait(), 10)
            heard.clear()
            killer.kill()
            await killer.wait()
            listening.close()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_DFL
    end.set()
    thread.join()
run(main)
"""
    assert run_driver(program, loop) == ""


@each_loop
def test_a_loop_that_ends_with_a_listener_takes_it_along(loop: str) -> None:
    """Left behind by a loop that is closed, the handler gives way to the former one: the program can be ended."""
    program = f"""{LISTENS}
kept = []
async def main():
    kept.append(Listening([signal.SIGTERM], listener(asyncio.get_running_loop(), asyncio.Event())))
child = os.fork()
if child == 0:
    run(main)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(20)
    os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""
    assert run_driver(program, loop) == "-15\n"


@each_loop
@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.half
def test_a_forked_child_has_the_handlers_of_before(loop: str, thread: bool) -> None:
    """It dies of SIGTERM, which its parent does not hear of, whichever thread forked it."""
    program = f"""{LISTENS}
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # of forks in threads
def fork():
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writing, b"x")
        signal.pause()
        time.sleep(20)
        os._exit(3)
    os.read(reading, 1)
    os.kill(child, signal.SIGTERM)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
async def main():
    heard = asyncio.Event()
    listening = Listening([signal.SIGTERM], listener(asyncio.get_running_loop(), heard))
    if {thread}:
        await asyncio.to_thread(fork)
    else:
        fork()
    await asyncio.sleep(0.05)
    assert not heard.is_set()
    os.kill(os.getpid(), signal.SIGTERM)
    await asyncio.wait_for(heard.wait(), 10)
    listening.close()
run(main)
"""
    assert run_driver(program, loop) == "-15\n"


def open_descriptors() -> int:
    """Count this program's descriptors."""
    return sum(1 for _ in Path("/proc/self/fd").iterdir())


async def test_no_descriptor_is_left() -> None:
    """Listening takes two descriptors at most, however many listen, and gives them back."""
    before = open_descriptors()
    listening = [Listening([signal.SIGUSR1], notes([])) for _ in range(5)]
    assert open_descriptors() <= before + 2
    await asyncio.sleep(0)
    for each in listening:
        each.close()

    assert open_descriptors() == before
