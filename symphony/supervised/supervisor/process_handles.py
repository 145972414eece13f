"""Handles of processes whose exits are observed: pidfds, and what is known of adopted processes."""

from __future__ import annotations

import os
import resource

from symphony.support.data_classes import dataclass

# The number of descriptors that are reserved for logs, probes and reading /proc, and are not used
# for pidfds.
SPARE_DESCRIPTORS = 64


@dataclass(slots=True)
class AdoptedChild:
    """A process that was started by a killed supervisor, so it is not a child of this process."""

    name: str
    pid: int
    birth: float
    pidfd: int | None = None


def open_pidfd(pid: int) -> int | None:
    """Return a descriptor that becomes readable when a process exits.

    Return None if no pidfd can be opened, or if only the spare descriptors are left.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return None
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if pidfd < limit - SPARE_DESCRIPTORS:
        return pidfd
    os.close(pidfd)
    return None
