"""Process trees: finding and stopping all processes that an experiment started.

This module uses psutil.

The environment of every process of an experiment contains the identifier of the run. Child
processes inherit the identifier, so a grandchild is found even if it has left its process group and
session, and even if its parent has exited.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

import psutil

from symphony.host.processes.identity import (
    RUN_ID_VARIABLE,
    ProcessId,
    identify,
    is_alive,
    is_in_exec,
)

# The maximum time to wait for a process in execve(2) to get its new environment. The call usually
# takes microseconds, but can take much longer on a busy machine.
EXEC_TIMEOUT_SECONDS = 5.0
_EXEC_POLL_SECONDS = 0.001

# One scan lists all processes at most this many times.
MAX_PASSES = 5

_POLL_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.5
_COMMAND_LINE_CHARACTERS = 60


def find_run_processes(run_id: str) -> list[ProcessId]:
    """Return this user's processes that belong to a run, except for the calling process.

    A process that forks and exits during the scan can leave a child that was not listed. The scan
    therefore lists the processes again until there is no new pid, but at most `MAX_PASSES` times.
    """
    found: list[ProcessId] = []
    seen = {os.getpid()}
    for _ in range(MAX_PASSES):
        new_pids = [pid for pid in psutil.pids() if pid not in seen]
        if not new_pids:
            break
        for pid in new_pids:
            process = _identify_in_run(pid, run_id)
            if process is not None:
                found.append(process)
        seen.update(new_pids)
    return found


def _identify_in_run(pid: int, run_id: str) -> ProcessId | None:
    """Return a process's identity, or None if the process is not known to belong to the run."""
    try:
        environment = _environment(pid)
        return identify(pid) if environment.get(RUN_ID_VARIABLE) == run_id else None
    except (psutil.Error, OSError):
        return None


def find_session_leaders(run_id: str) -> dict[str, ProcessId]:
    """Return a mapping from process names to a run's processes that are session leaders.

    These are the processes that a supervisor or a tmux window started. Their children are not
    included.
    """
    found: dict[str, ProcessId] = {}
    for process in find_run_processes(run_id):
        with contextlib.suppress(OSError):
            environment = read_environment(process.pid) or {}
            name = environment.get("SYMPHONY_ROLE")
            if name is not None and os.getsid(process.pid) == process.pid:
                found.setdefault(name, process)
    return found


def group_members(group: int) -> list[int]:
    """Return the pids of a process group's members, except for zombies."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group and identify(pid) is not None:
                found.append(pid)
    return found


def read_environment(pid: int) -> dict[str, str] | None:
    """Return the initial environment of a process, or None if it cannot be read."""
    try:
        return _environment(pid)
    except (psutil.Error, OSError):
        return None


def _environment(pid: int) -> dict[str, str]:
    """Return the initial environment of a process.

    A process in the middle of execve(2) has an empty environment. In this case, wait until the call
    has finished, but at most `EXEC_TIMEOUT_SECONDS`.
    """
    found = psutil.Process(pid).environ()
    if found:
        return found
    deadline = time.monotonic() + EXEC_TIMEOUT_SECONDS
    while is_in_exec(pid) and time.monotonic() < deadline:
        time.sleep(_EXEC_POLL_SECONDS)
    return psutil.Process(pid).environ()


def parent_pid(pid: int) -> int | None:
    """Return the pid of a process's current parent, or None if the parent is unknown or does not
    exist.
    """
    try:
        return psutil.Process(pid).ppid() or None
    except (psutil.Error, OSError):
        return None


def command_line(pid: int) -> str:
    """Return a process's command line, truncated for messages, or ``""`` if it cannot be read."""
    try:
        return " ".join(psutil.Process(pid).cmdline())[:_COMMAND_LINE_CHARACTERS]
    except (psutil.Error, OSError):
        return ""


def tcp_listeners() -> dict[int, str]:
    """Return descriptions of the processes that listen on TCP ports, keyed by port.

    An example is ``{8080: "pid 12 (python3 -m http.server)"}``. Ports of processes that this user
    is not allowed to inspect are omitted.
    """
    found: dict[int, str] = {}
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.pid and connection.laddr:
                description = f"pid {connection.pid} ({command_line(connection.pid)})"
                found[connection.laddr.port] = description
    return found


def exclusive_listening_ports(run_id: str) -> frozenset[int]:
    """Return the TCP ports on which only processes of a run listen."""
    pids = {process.pid for process in find_run_processes(run_id)}
    if not pids:
        return frozenset()
    of_run: set[int] = set()
    of_others: set[int] = set()
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.laddr:
                ports = of_run if connection.pid in pids else of_others
                ports.add(connection.laddr.port)
    return frozenset(of_run - of_others)


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


def stop_processes(
    find: Callable[[], Iterable[ProcessId]], grace: float, *, poll: float = _POLL_SECONDS
) -> None:
    """Stop the processes that ``find`` returns, and repeat this until ``find`` returns none.

    Send SIGTERM first, and SIGKILL after ``grace`` seconds. The processes must not be children of
    the caller. ``poll`` is the interval, in seconds, at which SIGKILL is sent again.
    """
    terminated: set[ProcessId] = set()
    deadline = time.monotonic() + grace
    while True:
        remaining = list(find())
        if not remaining:
            return
        is_grace_over = time.monotonic() >= deadline
        for process in remaining:
            if is_grace_over:
                send_signal(process, signal.SIGKILL)
            elif process not in terminated:
                send_signal(process, signal.SIGTERM)
                terminated.add(process)
        if is_grace_over:
            timeout = poll
        else:
            timeout = min(max(0.0, deadline - time.monotonic()), _LONGEST_WAIT_SECONDS)
        wait_until_exited(remaining, timeout)


def wait_until_exited(
    processes: Iterable[ProcessId], timeout: float, *, poll: float = _POLL_SECONDS
) -> bool:
    """Wait until all processes have exited. Return False if any of them is still running after
    ``timeout`` seconds.
    """
    deadline = time.monotonic() + timeout
    running = list(processes)
    while True:
        running = [process for process in running if is_alive(process)]
        remaining_seconds = deadline - time.monotonic()
        if not running:
            return True
        if remaining_seconds <= 0:
            return False
        time.sleep(min(poll, remaining_seconds))
