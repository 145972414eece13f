"""The clock that measures the deadline of an experiment."""

from __future__ import annotations

import time


class LaunchClock:
    """A clock that returns the time in seconds since the epoch, as it was set at the launch.

    The clock advances while the machine is suspended. It does not follow later changes of the
    system's date, because a corrected date must not end an experiment.
    """

    def __init__(self, launched: float | None = None) -> None:
        now = time.time() if launched is None else launched
        self._offset = now - time.clock_gettime(time.CLOCK_BOOTTIME)

    def now(self) -> float:
        """Return the current time."""
        return self._offset + time.clock_gettime(time.CLOCK_BOOTTIME)
