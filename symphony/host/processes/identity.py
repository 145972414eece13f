"""Who a process is: its id and when it was born, since an id alone is given again to others."""

from __future__ import annotations

import functools
import os
import sys
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class ProcessId:
    """A process for good: ``birth`` is in the kernel's clock ticks since boot on Linux, else in seconds."""

    pid: int
    birth: float


def birth(pid: int) -> float | None:
    """When the process of that id was born, or None where there is none (or only its corpse)."""
    if not sys.platform.startswith("linux"):
        from symphony.host.processes.tree import created

        return created(pid)
    told = _stat(pid)
    if told is None:
        return None
    state, start_time = told[0], told[19]
    return None if state in (b"Z", b"X") else float(start_time)


def is_becoming(pid: int) -> bool:
    """Whether a process is in the middle of becoming a program: it has memory, and no environment in it yet."""
    told = _stat(pid) if sys.platform.startswith("linux") else None
    if told is None:
        return False
    memory, end_of_environment = told[20], told[48]
    return memory != b"0" and end_of_environment == b"0"


def _stat(pid: int) -> list[bytes] | None:
    """What proc(5) tells in ``stat`` from the state on, or None of a process that is not there."""
    try:
        descriptor = os.open(
            f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC
        )  # cheaper than a file object
    except FileNotFoundError:
        return None
    try:
        # "pid (comm) state ppid ...", and comm may hold anything, so count from its last ")".
        return os.read(descriptor, 4096).rpartition(b") ")[2].split()
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)


def identify(pid: int) -> ProcessId | None:
    """The process that has this id now, or None."""
    born = birth(pid)
    return None if born is None else ProcessId(pid, born)


def is_alive(process: ProcessId) -> bool:
    """Whether that very process still runs."""
    return birth(process.pid) == process.birth


@functools.cache
def boot_id() -> str:
    """What tells this run of this machine from all others."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return os.uname().nodename
