"""Find out whether a process itself serves a port, and not a program that was there before.

The kernel lists the sockets that listen on a port, and `/proc/PID/fd` shows which programs have
them open. Programs of other users, and those in other namespaces, cannot be read. For example, the
server in a container listens in another network namespace, and a proxy of the container engine
listens here.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterator

from symphony.supervised.processes.environment import read_environment
from symphony.supervised.processes.identity import RUN_ID_VARIABLE, ProcessId, identify
from symphony.supervised.processes.listening import is_of_this_machine, listening_sockets
from symphony.supervised.processes.membership import list_pids

_SOCKET = re.compile(r"socket:\[([0-9]+)\]")


def other_server(host: str, port: int, process: ProcessId, run_id: str, name: str) -> str:
    """Return which other program serves a port of a process, or ``""``.

    ``process`` is the present execution of the process ``name`` of the run ``run_id``. A program
    counts as another one if it is known to have been started earlier than the process, such as a
    program that the previous execution has left behind. The result is also ``""`` if no program can
    be found, for example because it belongs to another user, or if the host is another machine.
    """
    sockets = {item.inode for item in listening_sockets(port)}
    if not sockets or not is_of_this_machine(host):
        return ""
    if any(_has_socket(pid, sockets) for pid in _descendants(process.pid)):
        return ""
    servers = [pid for pid in list_pids() if _has_socket(pid, sockets)]
    found = [server for pid in servers if (server := identify(pid)) is not None]
    if not found or not all(_is_older(server, process, run_id, name) for server in found):
        return ""
    return _description(found[0].pid)


def _is_older(server: ProcessId, process: ProcessId, run_id: str, name: str) -> bool:
    """Return whether a server was started before a process, and not by another process of the run.

    The processes of a group share their services.
    """
    if server.birth >= process.birth:
        return False
    environment = read_environment(server.pid)
    if environment is None or environment.get(RUN_ID_VARIABLE) != run_id:
        return True
    return environment.get("SYMPHONY_ROLE") in (name, None)


def _descendants(pid: int) -> Iterator[int]:
    """Yield the pid of a process and those of its descendants."""
    pending = [pid]
    while pending:
        parent = pending.pop()
        yield parent
        with contextlib.suppress(OSError):
            for thread in os.listdir(f"/proc/{parent}/task"):
                with open(f"/proc/{parent}/task/{thread}/children", encoding="ascii") as file:  # noqa: PTH123
                    pending += map(int, file.read().split())


def _has_socket(pid: int, inodes: Collection[int]) -> bool:
    """Return whether a program has one of the sockets open, as far as this user may read it."""
    directory = f"/proc/{pid}/fd"
    with contextlib.suppress(OSError):
        for descriptor in os.listdir(directory):
            # The program can close the descriptor at any time.
            with contextlib.suppress(OSError):
                found = _SOCKET.fullmatch(os.readlink(f"{directory}/{descriptor}"))  # noqa: PTH115
                if found is not None and int(found[1]) in inodes:
                    return True
    return False


def _description(pid: int) -> str:
    from symphony.supervised.processes.tree import command_line

    words = command_line(pid)
    return f"pid {pid} ({words})" if words else f"pid {pid}"
