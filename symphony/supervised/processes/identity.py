"""The identity of a process, which consists of its pid and its creation time.

A pid alone does not identify a process, because the system reuses pids.
"""

from __future__ import annotations

import functools
import os
import time
from pathlib import Path
from typing import NamedTuple

# Child processes inherit this variable, so it also identifies the descendants of these processes,
# unless a program has overwritten its environment; see `symphony.supervised.processes.membership`.
from symphony.support.names import RUN_ID_VARIABLE as RUN_ID_VARIABLE

_STAT_BYTES = 4096

# The positions of fields in /proc/PID/stat, counted from the process state; see proc(5).
_STATE, _PARENT, _GROUP, _SESSION = 0, 1, 2, 3
_START_TIME, _VIRTUAL_MEMORY, _ENVIRONMENT_END, _EXIT_STATUS = 19, 20, 48, 49
_USER_TIME, _SYSTEM_TIME, _CHILDREN_USER_TIME, _CHILDREN_SYSTEM_TIME = 11, 12, 13, 14
_RESIDENT_PAGES = 21


class ProcessId(NamedTuple):
    """The permanent identity of one process.

    ``birth`` is the creation time in kernel clock ticks since boot.
    """

    pid: int
    birth: float


class ProcessStat(NamedTuple):
    """The identity of a process, the pid of its parent, and its session."""

    process: ProcessId
    parent: int
    session: int


class TreeStat(NamedTuple):
    """The place of a process among the others: its parent and its process group, and whether a
    signal such as SIGSTOP has suspended it.
    """

    process: ProcessId
    parent: int
    group: int
    is_suspended: bool


class Reading(NamedTuple):
    """The resource use of a process at one point in time.

    ``at`` is that time, in seconds of `time.monotonic`. ``pid`` and ``birth`` are its identity; see
    `ProcessId`. ``own_ticks`` is the CPU time of the process, and ``reaped_ticks`` that of its
    child processes whose exit it has collected, both in kernel clock ticks. ``resident_pages`` is
    its resident set size. A process that has exited has no memory, but keeps its CPU time until its
    parent has collected its exit.
    """

    pid: int
    birth: float
    parent: int
    own_ticks: int
    reaped_ticks: int
    resident_pages: int
    at: float


def read_usage(pid: int) -> Reading | None:
    """Return the resource use of a process, or None if there is no such process.

    Unlike in `read_stat`, a zombie counts as a process.
    """
    at = time.monotonic()
    fields = _read_proc_stat(pid)
    if fields is None:
        return None
    return Reading(
        pid,
        float(fields[_START_TIME]),
        int(fields[_PARENT]),
        int(fields[_USER_TIME]) + int(fields[_SYSTEM_TIME]),
        int(fields[_CHILDREN_USER_TIME]) + int(fields[_CHILDREN_SYSTEM_TIME]),
        int(fields[_RESIDENT_PAGES]),
        at,
    )


def read_stat(pid: int) -> ProcessStat | None:
    """Return the current data of a process, or None if there is no such process.

    A zombie counts as an exited process.
    """
    fields = _read_running_stat(pid)
    if fields is None:
        return None
    process = ProcessId(pid, float(fields[_START_TIME]))
    return ProcessStat(process, parent=int(fields[_PARENT]), session=int(fields[_SESSION]))


def read_tree_stat(pid: int) -> TreeStat | None:
    """Return the place of a process among the others, or None if there is no such process.

    A zombie counts as an exited process.
    """
    fields = _read_running_stat(pid)
    if fields is None:
        return None
    return TreeStat(
        ProcessId(pid, float(fields[_START_TIME])),
        parent=int(fields[_PARENT]),
        group=int(fields[_GROUP]),
        is_suspended=fields[_STATE] == b"T",
    )


def birth_time(pid: int) -> float | None:
    """Return the creation time of a process, or None if there is no such process.

    A zombie counts as an exited process. See `ProcessId` for the unit.
    """
    fields = _read_running_stat(pid)
    return None if fields is None else float(fields[_START_TIME])


def program_name(pid: int) -> str:
    """Return the name of a program as the kernel knows it, which has at most 15 characters.

    If there is no such process, the result is ``"a program"``.
    """
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
            return file.read().rstrip("\n")
    except OSError:
        return "a program"


def is_in_exec(pid: int) -> bool:
    """Return whether a process is in the middle of execve(2).

    During this call, the process's new address space does not contain an environment yet.
    """
    fields = _read_proc_stat(pid)
    if fields is None:
        return False
    return fields[_VIRTUAL_MEMORY] != b"0" and fields[_ENVIRONMENT_END] == b"0"


def read_exit_status(process: ProcessId) -> int | None:
    """Return the status of an exited process whose parent has not collected it, as `os.wait` does.

    Return None if the process is running, if its status has been collected, or if this user may not
    read it.
    """
    fields = _read_proc_stat(process.pid)
    if fields is None or fields[_STATE] != b"Z" or float(fields[_START_TIME]) != process.birth:
        return None
    # The kernel reports 0 to programs that may not read the status.
    is_readable = os.geteuid() == 0 or os.stat(f"/proc/{process.pid}").st_uid == os.geteuid()  # noqa: PTH116
    return int(fields[_EXIT_STATUS]) if is_readable else None


def _read_running_stat(pid: int) -> list[bytes] | None:
    """Return the same as `_read_proc_stat`, but None if the process has exited."""
    fields = _read_proc_stat(pid)
    return None if fields is None or fields[_STATE] in (b"Z", b"X") else fields


def _read_proc_stat(pid: int) -> list[bytes] | None:
    """Return the fields of ``/proc/PID/stat`` from the process state onwards, or None if there is
    no such process.
    """
    try:
        # Scans of all processes call this function often, and os.open is faster than a file object.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError):
        return None
    try:
        content = os.read(descriptor, _STAT_BYTES)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    # The format is "pid (comm) state ppid ...". The command name can contain any character, so the
    # fields are counted from the last ")".
    return content.rpartition(b") ")[2].split()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of the process with this pid, or None if there is no such process."""
    stat = read_stat(pid)
    return None if stat is None else stat.process


def is_alive(process: ProcessId) -> bool:
    """Return whether a process is still running. Another process that reuses its pid does not
    count.
    """
    return birth_time(process.pid) == process.birth


def is_zombie(pid: int) -> bool:
    """Return whether a process has exited and its parent has not collected the exit."""
    fields = _read_proc_stat(pid)
    return fields is not None and fields[_STATE] == b"Z"


def is_suspended(process: ProcessId) -> bool:
    """Return whether a signal such as SIGSTOP has suspended a process.

    A process that a debugger has paused does not count.
    """
    fields = _read_proc_stat(process.pid)
    if fields is None or float(fields[_START_TIME]) != process.birth:
        return False
    return fields[_STATE] == b"T"


@functools.cache
def boot_id() -> str:
    """Return an identifier that is unique to the current boot of this machine.

    If the system provides no such identifier, return the host name.
    """
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename


@functools.cache
def pid_namespace() -> int | None:
    """Return the number of this process's PID namespace, or None if it is unknown.

    Containers have their own PID namespaces. A pid identifies a process only within its namespace,
    and a process cannot observe processes outside its own namespace. The number is unique among
    the namespaces that exist at the same time.
    """
    try:
        return os.stat("/proc/self/ns/pid").st_ino  # noqa: PTH116
    except OSError:
        return None
