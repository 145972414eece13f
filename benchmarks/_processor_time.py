"""Measure the processor time of the descendants of this program.

The kernel adds the time of a process to its parent when the parent collects its exit. Programs that
detach themselves, such as supervisors, remain descendants, because this program adopts orphans.
"""

from __future__ import annotations

import ctypes
import os
import resource
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_TICKS = os.sysconf("SC_CLK_TCK")
# The positions of fields in /proc/PID/stat, counted from the process state; see proc(5).
_PARENT, _USER_TIME, _SYSTEM_TIME, _CHILDREN_USER_TIME, _CHILDREN_SYSTEM_TIME = 1, 11, 12, 13, 14


def adopt_orphans() -> None:
    """Become the parent of all descendants whose parents exit; see prctl(2)."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendant_seconds() -> float:
    """Return the processor time of all descendants of this program, in seconds."""
    reaped = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = reaped.ru_utime + reaped.ru_stime
    fields = {pid: stat for pid in _pids() if (stat := _stat(pid))}
    children: dict[int, list[int]] = {}
    for pid, stat in fields.items():
        children.setdefault(int(stat[_PARENT]), []).append(pid)
    pending = list(children.get(os.getpid(), ()))
    while pending:
        pid = pending.pop()
        seconds += _own_seconds(pid, fields[pid]) + _reaped_seconds(fields[pid])
        pending += children.get(pid, ())
    return seconds


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _stat(pid: int) -> list[bytes]:
    """Return the fields of ``/proc/PID/stat`` from the process state onwards, or none."""
    try:
        content = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return []
    return content.rpartition(b") ")[2].split()


def _own_seconds(pid: int, stat: list[bytes]) -> float:
    """Return the processor time of one process.

    ``schedstat`` has nanoseconds for each thread, and ``stat`` counts in steps of 10 ms.
    """
    try:
        threads = os.listdir(f"/proc/{pid}/task")
        times = [Path(f"/proc/{pid}/task/{number}/schedstat").read_bytes() for number in threads]
    except (FileNotFoundError, ProcessLookupError):
        times = []
    if not times:
        return (int(stat[_USER_TIME]) + int(stat[_SYSTEM_TIME])) / _TICKS
    return sum(int(content.split()[0]) for content in times) / 1e9


def _reaped_seconds(stat: list[bytes]) -> float:
    """Return the processor time of the exited children of a process."""
    return (int(stat[_CHILDREN_USER_TIME]) + int(stat[_CHILDREN_SYSTEM_TIME])) / _TICKS
