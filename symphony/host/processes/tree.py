"""Process trees: finding and stopping all processes that an experiment started. Uses psutil.

Every process of an experiment has the identifier of its run in its environment. Child processes
inherit the identifier, so a grandchild is found even after it has left its process group and its
session and has lost its parent.
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

# The maximum time for which execve(2) is expected to leave a process without an environment. The
# call usually takes microseconds, but can take much longer on a busy machine.
EXEC_TIMEOUT_SECONDS = 5.0
_EXEC_POLL_SECONDS = 0.001

# The maximum number of times that one scan lists all processes.
MAX_PASSES = 5

_POLL_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.5
_COMMAND_LINE_CHARACTERS = 60


def find_run_processes(run_id: str) -> list[ProcessId]:
    """Return every process of this user that belongs to a run, except for the caller.

    A process that forks and exits during the scan can leave a child that was not listed. The scan
    therefore repeats until a pass finds no new pid.
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
    """Return the identity of a process, or None if it does not belong to the run."""
    try:
        environment = _environment(pid)
        return identify(pid) if environment.get(RUN_ID_VARIABLE) == run_id else None
    except (psutil.Error, OSError):
        return None


def find_session_leaders(run_id: str) -> dict[str, ProcessId]:
    """Return a mapping from process names to the running processes of a run that lead a session.

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
    """Return the pids of the members of a process group, except for zombies."""
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

    A process in the middle of execve(2) shows an empty environment. Wait until the call has
    finished.
    """
    found = psutil.Process(pid).environ()
    if found:
        return found
    deadline = time.monotonic() + EXEC_TIMEOUT_SECONDS
    while is_in_exec(pid) and time.monotonic() < deadline:
        time.sleep(_EXEC_POLL_SECONDS)
    return psutil.Process(pid).environ()


def parent_pid(pid: int) -> int | None:
    """Return the pid of the current parent of a process, or None if it has none."""
    try:
        return psutil.Process(pid).ppid() or None
    except (psutil.Error, OSError):
        return None


def command_line(pid: int) -> str:
    """Return the command line of a process, shortened for messages, or ``""`` if it is unknown."""
    try:
        return " ".join(psutil.Process(pid).cmdline())[:_COMMAND_LINE_CHARACTERS]
    except (psutil.Error, OSError):
        return ""


def tcp_listeners() -> dict[int, str]:
    """Return a mapping from the TCP ports in use to descriptions of the listening processes.

    An example is ``{8080: "pid 12 (python3 -m http.server)"}``. Processes that this user is not
    allowed to inspect are missing.
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
    """Send a signal to exactly this process. Return False if it has exited."""
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
    """Send a signal by pid. This function is for the case that no pidfd can be opened.

    In theory, the system could reuse the pid between the check and the signal.
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
    """Stop the processes that ``find`` returns, and repeat until ``find`` returns no processes.

    Send SIGTERM first, and SIGKILL after ``grace`` seconds. The processes must not be children of
    the caller. ``poll`` is the interval between checks in seconds.
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
    """Wait until all processes have exited. Return False if ``timeout`` seconds pass first."""
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
