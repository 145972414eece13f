"""Killing supervisors and their guardians."""

from __future__ import annotations

import os
import select
import signal

from symphony.supervised.record.directory import RunDirectory


def kill(pid: int) -> None:
    """Kill a process that a test started, and wait until it has exited."""
    handle = os.pidfd_open(pid)
    signal.pidfd_send_signal(handle, signal.SIGKILL)
    wait_pid(handle)


def wait_pid(handle: int, timeout: float = 20) -> None:
    """Wait until the process of a pidfd has exited, and close the pidfd."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    assert poll.poll(timeout * 1000), "the process did not exit"
    os.close(handle)


def kill_supervision(run: RunDirectory) -> None:
    """Kill the supervisor of a run and its guardian, so that neither replaces the other."""
    supervisor, guardian = run.supervisor(), run.guardian()
    assert supervisor is not None
    # It does not notice the death of the guardian.
    os.kill(supervisor.pid, signal.SIGSTOP)
    if guardian is not None:
        kill(guardian)
    kill(supervisor.pid)
