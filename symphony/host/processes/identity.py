"""The identity of a process, which is its pid and its creation time, because the system reuses
pids.
"""

from __future__ import annotations

import functools
import os
from dataclasses import dataclass
from pathlib import Path

# Every process of a run has the identifier of the run in this environment variable. Child processes
# inherit the variable, so every process that such a process starts has it too.
RUN_ID_VARIABLE = "SYMPHONY_RUN"

_STAT_BYTES = 4096

# The positions of fields in the file "stat" of proc(5), counted from the state of the process.
_STATE, _START_TIME, _VIRTUAL_MEMORY, _ENVIRONMENT_END = 0, 19, 20, 48


@dataclass(frozen=True, slots=True)
class ProcessId:
    """Identifies one process permanently.

    ``birth`` is the creation time in kernel clock ticks since boot.
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

    At that moment, the new memory of the process contains no environment.
    """
    fields = _read_proc_stat(pid)
    if fields is None:
        return False
    return fields[_VIRTUAL_MEMORY] != b"0" and fields[_ENVIRONMENT_END] == b"0"


def _read_proc_stat(pid: int) -> list[bytes] | None:
    """Return the fields of ``stat``, proc(5), from the state on, or None if there is no such
    process.
    """
    try:
        # os.open is faster than a file object, and every scan of all processes calls this function.
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
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
    birth = birth_time(pid)
    return None if birth is None else ProcessId(pid, birth)


def is_alive(process: ProcessId) -> bool:
    """Return whether exactly this process is still running."""
    return birth_time(process.pid) == process.birth


@functools.cache
def boot_id() -> str:
    """Return an identifier that is unique to the current boot of this machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
