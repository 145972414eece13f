"""Run a program below PID 1 of a container, which collects the exits of all orphans.

Orphans become children of PID 1. A program that does not expect them would leave each of them as a
zombie. Therefore, PID 1 only starts the program as a child, and passes on the signals.
"""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Callable

# The code of a signal that the kernel sends to all programs of a terminal, such as for Ctrl-C; see
# sigaction(2).
_SI_KERNEL = 128
_SIGNALED_EXIT_CODE = 128


def run_below_first_process(run: Callable[[], int]) -> int:
    """Return the result of ``run``. If this process is PID 1, a child process calls ``run``."""
    if os.getpid() != 1:
        return run()
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    child = os.fork()
    if child == 0:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)
        return run()
    return _wait_for(child)


def _wait_for(child: int) -> int:
    """Pass on signals to a child, and return its exit code. Collect the exits of all orphans."""
    while True:
        received = signal.sigwaitinfo(signal.valid_signals())
        if received.si_signo != signal.SIGCHLD:
            # The child has received the signals of the terminal, too.
            if received.si_code != _SI_KERNEL:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child, received.si_signo)
            continue
        status = _collect(child)
        if status is not None:
            code = os.waitstatus_to_exitcode(status)
            return _SIGNALED_EXIT_CODE - code if code < 0 else code


def _collect(child: int) -> int | None:
    """Collect the exits of all children. Return the status of ``child`` if it has exited."""
    found: int | None = None
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                break
            if pid == child:
                found = status
    return found
