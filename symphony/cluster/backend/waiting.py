"""Waiting until processes have reached a state, on every backend whose experiments are watched."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from symphony.cluster.matching import still_awaited, wait_timeout

if TYPE_CHECKING:
    from symphony.cluster.backend import WaitGoal, Watch
    from symphony.status import ExperimentStatus

# How often a status is read if the backend reports no change.
_STATUS_CHECK_SECONDS = 1.0


def wait_until(
    watch: Watch,
    goal: WaitGoal,
    on_change: Callable[[ExperimentStatus], None] | None,
) -> ExperimentStatus:
    """Wait until an experiment has reached ``goal``, and return its status.

    ``on_change`` is called with each status that differs from the previous one. Raises
    `TimeoutError`.
    """
    deadline = None if goal.timeout is None else time.monotonic() + goal.timeout
    previous: ExperimentStatus | None = None
    while True:
        (status,) = watch.read().statuses
        if on_change is not None and status != previous:
            on_change(status)
        previous = status
        awaited = still_awaited(status, goal.until, goal.processes)
        if not awaited:
            return status
        # A backend may not notice that a process has disappeared, so the status is also read at
        # regular intervals.
        seconds = _STATUS_CHECK_SECONDS
        if deadline is not None:
            seconds = min(seconds, deadline - time.monotonic())
        if seconds <= 0:
            raise wait_timeout(status, goal.until, awaited, goal.timeout or 0.0)
        watch.wait(seconds)
