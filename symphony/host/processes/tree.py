"""Process trees: finding and ending everything that an experiment started. Alone imports psutil.

Every process of an experiment carries the experiment's mark in its environment, and so does what it starts:
a grandchild is found even after it has left its group, its session and its parents.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable

import psutil

from symphony.host.processes.identity import ProcessId, identify, is_alive, is_becoming
from symphony.host.processes.spec import MARK

# How long a process may take from giving up its old memory to having its environment in the new, in seconds. Mostly it
# is some microseconds, and more where the machine is busy with others.
BECOMING = 5.0
# How often one look at all processes lists them at most.
LISTINGS = 5


def created(pid: int) -> float | None:
    """When a process was created, in seconds since the epoch, or None where there is none."""
    try:
        process = psutil.Process(pid)
        return None if process.status() == psutil.STATUS_ZOMBIE else process.create_time()
    except psutil.Error:
        return None


def marked(run: str) -> list[ProcessId]:
    """Every process of this user that carries the mark of a run, but for the caller.

    Who forks and ends between being listed and being looked at leaves a child that was not listed, so those who came
    meanwhile are looked at too.
    """
    found: list[ProcessId] = []
    seen = {os.getpid()}
    for _ in range(LISTINGS):
        coming = [pid for pid in psutil.pids() if pid not in seen]
        found += (process for pid in coming if (process := _if_marked(pid, run)))
        seen.update(coming)
        if not coming:
            break
    return found


def _if_marked(pid: int, run: str) -> ProcessId | None:
    with contextlib.suppress(psutil.Error, OSError):
        return identify(pid) if _environ(pid).get(MARK) == run else None
    return None


def leaders(run: str) -> dict[str, ProcessId]:
    """The processes of a run that live, by name: those that a supervisor or a window began, not what they began."""
    found: dict[str, ProcessId] = {}
    for process in marked(run):
        with contextlib.suppress(OSError):
            name = (environment(process.pid) or {}).get("SYMPHONY_ROLE")
            if name is not None and os.getsid(process.pid) == process.pid:
                found.setdefault(name, process)
    return found


def group_members(group: int) -> list[int]:
    """The members of a process group that live."""
    found = []
    for pid in psutil.pids():
        with contextlib.suppress(OSError):
            if os.getpgid(pid) == group and identify(pid) is not None:
                found.append(pid)
    return found


def environment(pid: int) -> dict[str, str] | None:
    """The environment that a process began with, or None where it cannot be read."""
    try:
        return _environ(pid)
    except (psutil.Error, OSError):
        return None


def _environ(pid: int) -> dict[str, str]:
    """What `environment` tells. Who is just becoming its program has none to be seen yet: that is waited for."""
    found = psutil.Process(pid).environ()
    if found:
        return found
    deadline = time.monotonic() + BECOMING
    while is_becoming(pid) and time.monotonic() < deadline:
        time.sleep(0.001)
    return psutil.Process(pid).environ()


def parent(pid: int) -> int | None:
    """The process that began another, or whoever has taken it in since; None where there is none."""
    try:
        return psutil.Process(pid).ppid() or None
    except (psutil.Error, OSError):
        return None


def command_of(pid: int) -> str:
    """The command line of a process, for messages, or ``""``."""
    try:
        return " ".join(psutil.Process(pid).cmdline())[:60]
    except (psutil.Error, OSError):
        return ""


def listeners() -> dict[int, str]:
    """Who listens on which TCP port, for messages: ``{8080: "pid 12 (python3 -m http.server)"}``."""
    found: dict[int, str] = {}
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp"):
            if connection.status == psutil.CONN_LISTEN and connection.pid and connection.laddr:
                found[connection.laddr.port] = (
                    f"pid {connection.pid} ({command_of(connection.pid)})"
                )
    return found


def listened(run: str) -> frozenset[int]:
    """The TCP ports on which processes of a run listen, and nobody else."""
    mine = {process.pid for process in marked(run)}
    ports: dict[bool, set[int]] = {True: set(), False: set()}
    with contextlib.suppress(psutil.Error, OSError):
        for connection in psutil.net_connections("tcp") if mine else ():
            if connection.status == psutil.CONN_LISTEN and connection.laddr:
                ports[connection.pid in mine].add(connection.laddr.port)
    return frozenset(ports[True] - ports[False])


def send(process: ProcessId, number: signal.Signals) -> bool:
    """Signal that very process; False where it has gone."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return False
    except (AttributeError, OSError):
        return _send_by_id(process, number)
    try:
        if not is_alive(process):
            return False
        signal.pidfd_send_signal(handle, number)
        return True
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)


def _send_by_id(process: ProcessId, number: signal.Signals) -> bool:
    """Without pidfds: look, then signal; between the two an id could in theory be given again."""
    if not is_alive(process):
        return False
    with contextlib.suppress(ProcessLookupError):
        os.kill(process.pid, number)
        return True
    return False


def stop_all(find: Callable[[], Iterable[ProcessId]], grace: float, *, poll: float = 0.02) -> None:
    """End what ``find`` tells, and what it tells again, until it tells none: TERM, ``grace`` seconds, KILL.

    For processes that are nobody's children, whose ends cannot be waited for as a parent does.
    """
    told: set[ProcessId] = set()
    deadline = time.monotonic() + grace
    while True:
        left = list(find())
        if not left:
            return
        late = time.monotonic() >= deadline
        for process in left:
            if late:
                send(process, signal.SIGKILL)
            elif process not in told:
                send(process, signal.SIGTERM)
                told.add(process)
        wait_gone(left, poll if late else max(0.0, min(deadline - time.monotonic(), 0.5)))


def wait_gone(processes: Iterable[ProcessId], timeout: float, *, poll: float = 0.02) -> bool:
    """Wait until all have ended; False where ``timeout`` seconds passed first."""
    deadline = time.monotonic() + timeout
    left = list(processes)
    while True:
        left = [process for process in left if is_alive(process)]
        remaining = deadline - time.monotonic()
        if not left or remaining <= 0:
            return not left
        time.sleep(min(poll, remaining))
