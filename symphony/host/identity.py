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
        from symphony.host.trees import created

        return created(pid)
    try:
        descriptor = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)  # cheaper than a file object
    except FileNotFoundError:
        return None
    try:
        # proc(5): "pid (comm) state ppid ...", and comm may hold anything, so count from its last ")".
        rest = os.read(descriptor, 4096).rpartition(b") ")[2].split()
    except ProcessLookupError:
        return None
    finally:
        os.close(descriptor)
    state, start_time = rest[0], rest[19]
    return None if state in (b"Z", b"X") else float(start_time)


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
