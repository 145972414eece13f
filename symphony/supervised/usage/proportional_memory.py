"""Reading the proportional set sizes (PSS) of processes at a limited cost.

The kernel examines all pages of a process to compute its PSS. This takes about 50 microseconds for
a small process and can take more than a second for a process with 100 GiB. Therefore, the PSS is
not read for each sample.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping

# The PSS of a process is read at most this often.
INTERVAL_SECONDS = 10.0
# The reads use at most this share of a core on average, after the first reads.
MAX_SHARE = 0.005
# The CPU time for the first reads.
FIRST_SECONDS = 0.1
_READ_BYTES = 4096


class ProportionalMemory:
    """The latest known PSS of processes."""

    def __init__(self) -> None:
        # The birth and the PSS of each process, by its pid.
        self._known: dict[int, tuple[float, int | None]] = {}
        # The times of the reads with the pids, the earliest first.
        self._reads: deque[tuple[float, int]] = deque()
        # The CPU time that can be spent on reads.
        self._budget_seconds = FIRST_SECONDS
        self._updated_at = time.monotonic()

    def update(self, births: Mapping[int, float]) -> None:
        """Read the PSS of processes that are new, and of those that were read long ago.

        ``births`` maps the pids of all processes to their birth times. Other processes are
        forgotten.
        """
        now = time.monotonic()
        earned = (now - self._updated_at) * MAX_SHARE
        self._budget_seconds = min(FIRST_SECONDS, self._budget_seconds + earned)
        self._updated_at = now
        for pid, (birth, _) in list(self._known.items()):
            if births.get(pid) != birth:
                del self._known[pid]
        for pid, birth in births.items():
            if pid not in self._known and self._budget_seconds > 0:
                self._read(pid, birth)
        while self._reads and self._reads[0][0] + INTERVAL_SECONDS <= now:
            if self._budget_seconds <= 0:
                break
            _, pid = self._reads.popleft()
            if pid in self._known:
                self._read(pid, births[pid])

    def get(self, pid: int) -> int | None:
        """Return the PSS of a process in bytes, or None if it is not known."""
        return self._known[pid][1] if pid in self._known else None

    def _read(self, pid: int, birth: float) -> None:
        # A busy machine does not count.
        start = time.thread_time()
        self._known[pid] = (birth, _read_pss(pid))
        self._budget_seconds -= time.thread_time() - start
        self._reads.append((self._updated_at, pid))


def _read_pss(pid: int) -> int | None:
    """Return the PSS of a process in bytes, or None if it cannot be read.

    The program of another user cannot be read, for example.
    """
    try:
        with open(f"/proc/{pid}/smaps_rollup", "rb", buffering=0) as file:  # noqa: PTH123
            content = file.read(_READ_BYTES)
    except OSError:
        return None
    for line in content.splitlines():
        if line.startswith(b"Pss:"):
            return int(line.split()[1]) * 1024
    return None
