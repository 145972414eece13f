"""Examining, signaling and stopping processes. This module uses psutil."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import psutil

from symphony.supervised.processes.identity import ProcessId, identify, is_alive
from symphony.supervised.processes.process_groups import send_signal

_POLL_SECONDS = 0.02
_LONGEST_WAIT_SECONDS = 0.5
_COMMAND_LINE_CHARACTERS = 60


def group_members(group: int) -> list[int]:
    """Return the pids of a process group's members, except for zombies."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group and identify(pid) is not None:
                found.append(pid)
    return found


def find_users_of_file(path: Path) -> Iterator[tuple[ProcessId, list[str]]]:
    """Yield this user's processes that have a file open, with their command lines.

    The calling process is not included.
    """
    wanted = path.stat()
    for pid in psutil.pids():
        if pid == os.getpid():
            continue
        with contextlib.suppress(psutil.Error, OSError):
            process = identify(pid)
            if process is not None and _has_open(pid, wanted):
                yield process, psutil.Process(pid).cmdline()


def _has_open(pid: int, wanted: os.stat_result) -> bool:
    """Return whether a process has the file ``wanted`` open."""
    with os.scandir(f"/proc/{pid}/fd") as descriptors:
        for descriptor in descriptors:
            # The process can close the descriptor at any time.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(descriptor.stat(), wanted):
                    return True
    return False


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


def exclusive_listening_ports(processes: Iterable[ProcessId]) -> frozenset[int]:
    """Return the TCP ports on which only the given processes listen."""
    pids = {process.pid for process in processes}
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
