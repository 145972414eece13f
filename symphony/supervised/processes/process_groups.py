"""Sending signals to processes and process groups, and waiting for a process to exit."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator

from symphony.supervised.processes.identity import ProcessId, is_alive, is_suspended

_POLL_SECONDS = 0.02
_PIDFD_TIMEOUT_MILLISECONDS = 500


def signal_group(group: int, number: int) -> bool:
    """Send a signal to a process group. Return False if the group has no members."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        pass  # The group has members, but they belong to another user.
    return True


def send_signal(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal to a process, but not to another process that has reused its pid.

    Return False if the process has exited.
    """
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except OSError:
        return _send_signal_by_pid(process, number)
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def _send_signal_by_pid(process: ProcessId, number: signal.Signals) -> bool:
    """Send a signal by pid. Use this function only if no pidfd can be opened.

    In theory, the system could reuse the pid after the check and before the signal is sent.
    """
    if not is_alive(process):
        return False
    try:
        os.kill(process.pid, number)
    except ProcessLookupError:
        return False
    return True


def wait_for_exit(process: ProcessId, timeout: float) -> bool:
    """Wait for a process to exit. The process need not be a child of the caller.

    Return False if the process is still running after ``timeout`` seconds, or as soon as it is
    suspended, because a suspended process cannot exit.
    """
    deadline = time.monotonic() + timeout
    with _exit_waiter(process.pid) as wait:
        while is_alive(process):
            if time.monotonic() >= deadline or is_suspended(process):
                return False
            wait()
    return True


@contextlib.contextmanager
def _exit_waiter(pid: int) -> Iterator[Callable[[], object]]:
    """Yield a function that blocks until the process exits or a short time has passed."""
    try:
        handle = os.pidfd_open(pid)
    except OSError:
        yield lambda: time.sleep(_POLL_SECONDS)
        return
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    try:
        yield lambda: poll.poll(_PIDFD_TIMEOUT_MILLISECONDS)
    finally:
        os.close(handle)
