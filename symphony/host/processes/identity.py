"""The identity of a process: its pid and its creation time, because the system reuses pids."""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

# Every process of a run has the identifier of the run in this environment variable, and so has
# everything that it starts: child processes inherit the variable.
RUN_ID_VARIABLE = "SYMPHONY_RUN"

_STAT_BYTES = 4096

# Positions in the fields of proc(5)'s "stat", counted from the state of the process.
_STATE, _START_TIME, _VIRTUAL_MEMORY, _ENVIRONMENT_END = 0, 19, 20, 48


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identifies one process permanently.

    ``birth`` is its creation time in kernel clock ticks since boot.
    """

    pid: int
    birth: float


def birth_time(pid: int) -> float | None:
    """Return the creation time of a process, or None if there is no such process.

    A zombie counts as an exited process. See `ProcessId` for the unit.
    """
    fields = _read_proc_stat(pid)
    if fields is None or fields[_STATE] in (b"Z", b"X"):
        return None
    return float(fields[_START_TIME])


def is_in_exec(pid: int) -> bool:
    """Return whether a process is in the middle of execve(2).

    Its new memory has no environment at that moment.
    """
    fields = _read_proc_stat(pid)
    if fields is None:
        return False
    return fields[_VIRTUAL_MEMORY] != b"0" and fields[_ENVIRONMENT_END] == b"0"


def _read_proc_stat(pid: int) -> list[bytes] | None:
    """Return the fields of proc(5)'s ``stat`` from the state on, or None if there is no process."""
    try:
        # os.open is cheaper than a file object, and every scan of all processes calls this.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = os.read(descriptor, _STAT_BYTES)
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    # The format is "pid (comm) state ppid ...". The command name may contain any character, so the
    # fields are counted from the last ")".
    return content.rpartition(b") ")[2].split()


def identify(pid: int) -> ProcessId | None:
    """Return the identity of the process that has this pid, or None if there is no such process."""
    birth = birth_time(pid)
    return None if birth is None else ProcessId(pid, birth)


def is_alive(process: ProcessId) -> bool:
    """Return whether exactly this process still runs."""
    return birth_time(process.pid) == process.birth


@functools.cache
def boot_id() -> str:
    """Return an identifier that is unique to this boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
