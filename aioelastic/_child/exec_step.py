"""The step between fork and exec: give a command the signal state it should start with, then become it.

Run as ``python -I -S exec_step.py STATUS_FD GO_FD IGNORED DROPPED COMMAND ARGS...``, only where there is something to
set. A thread that starts ranks with signals blocked, or dispositions that the program made itself ignore, hand both on
through exec. ``preexec_fn`` could undo that too, but it runs Python in a forked copy of a threaded program (deadlocks)
and makes every start slower (no vfork).

STATUS_FD stays open until exec closes it; a failed exec writes its errno there. GO_FD, unless it is empty, is read
before anything else: until something comes, the supervisor is still binding this process to CPUs. IGNORED lists the
signals that stay ignored. DROPPED names variables that the interpreter itself adds on start (``LC_CTYPE``, PEP 538).
"""

import os
import signal
import sys


def main(status: int, go: str, ignored: str, dropped: str, command: list[str]) -> None:
    """Set the signal state and become the command; on failure report the errno and exit with 127."""
    os.set_inheritable(status, False)
    if go:
        if not os.read(int(go), 1):
            os._exit(127)  # the supervisor is gone, or has given this rank up
        os.close(int(go))
    kept = {int(number) for number in ignored.split(",") if number}
    for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        try:  # noqa: SIM105 - contextlib would double what this step imports
            signal.signal(number, signal.SIG_IGN if number in kept else signal.SIG_DFL)
        except OSError:
            pass  # real-time signals that the C library keeps for itself
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for name in filter(None, dropped.split(",")):
        os.environ.pop(name, None)
    try:
        os.execvp(command[0], command)  # noqa: S606 - becoming the command is the purpose
    except OSError as error:
        os.write(status, str(error.errno).encode())
        os._exit(127)


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4], sys.argv[5:])
