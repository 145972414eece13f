"""The simulated time, and what is due when."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import Any

# The time of the launch. It is not 0, so that a wrong use of "or" with a time shows.
LAUNCH_TIME = 1000.0


class Clock:
    """The simulated time in seconds, and a queue of calls.

    Calls that are due at the same time happen in the order in which they were scheduled.
    """

    __slots__ = ("_count", "_queue", "now")

    def __init__(self) -> None:
        self.now = LAUNCH_TIME
        self._queue: list[tuple[float, int, Callable[[Any], None], Any]] = []
        self._count = 0

    def after(self, seconds: float, call: Callable[[Any], None], argument: Any = None) -> None:
        """Schedule a call ``seconds`` seconds from now."""
        self._count += 1
        heapq.heappush(self._queue, (self.now + seconds, self._count, call, argument))

    @property
    def next_time(self) -> float | None:
        """The time of the next call, or None if nothing is scheduled."""
        return self._queue[0][0] if self._queue else None

    @property
    def is_settled(self) -> bool:
        """True if at most one call is scheduled."""
        return len(self._queue) <= 1

    def run_due(self) -> None:
        """Make all calls that are due now, including those that they schedule for now."""
        queue, now = self._queue, self.now
        while queue and queue[0][0] <= now:
            _, _, call, argument = heapq.heappop(queue)
            call(argument)

    def clear(self) -> None:
        """Forget all calls."""
        self._queue.clear()
