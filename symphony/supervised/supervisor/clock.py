"""The clock that measures the deadline of an experiment."""

from __future__ import annotations

import time


class LaunchClock:
    """A clock that returns the time in seconds since the epoch, as it was set at the launch.

    The clock advances while the machine is suspended. It does not follow later changes of the
    system's date, because a corrected date must not end an experiment.

    ``launched`` is the time of the launch, and ``boot_seconds`` is this time in seconds since the
    machine was booted. The defaults are the current times.
    """

    def __init__(self, launched: float | None = None, boot_seconds: float | None = None) -> None:
        launched = time.time() if launched is None else launched
        self._offset = launched - (boot_time() if boot_seconds is None else boot_seconds)

    def now(self) -> float:
        """Return the current time."""
        return self._offset + boot_time()


def boot_time() -> float:
    """Return the time in seconds since the machine was booted."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
