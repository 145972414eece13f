"""Repeating the health test of a process while the process is running."""

from __future__ import annotations

import functools
from collections.abc import Callable

from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.probe_thread import (
    NOT_FINISHED,
    Outcome,
    run_probe,
)
from symphony.supervised.supervisor.execution.probes import READY, Probe

# A test that returns even later than this after its timeout has failed, whatever its result is. A
# probe that could not be run, for example because a node does not answer, returns earlier.
RETURN_MARGIN_SECONDS = 3.0


class HealthMonitor:
    """A monitor that probes one process until ``is_active`` returns False.

    The first test begins after ``every`` seconds, and each further one ``every`` seconds after the
    end of the previous one. A test may last for ``timeout`` seconds. ``on_result`` is called after
    each test that changes the number of tests in a row that have failed, with this number and the
    latest result. A test that could not be run changes nothing.
    """

    def __init__(
        self,
        loop: EventLoop,
        probe: Probe,
        *,
        every: float,
        timeout: float,
        is_active: Callable[[], bool],
        on_result: Callable[[int, str], None],
    ) -> None:
        self._loop = loop
        self._probe = probe
        self._every = every
        self._timeout = timeout
        self._is_active = is_active
        self._on_result = on_result
        self._failures = 0
        self._number = 0
        self._is_awaited = False
        self._is_running = False
        self._is_closed = False

    def start(self) -> None:
        """Start to probe the process."""
        self._loop.after(self._every, self._start_test)

    def _start_test(self) -> None:
        if self._is_over():
            return
        self._number += 1
        self._is_awaited = True
        give_up = functools.partial(self._give_up, self._number)
        self._loop.after(self._timeout + RETURN_MARGIN_SECONDS, give_up)
        if self._is_running:
            # The thread of an earlier test has not returned. Another one would not return either.
            return
        self._is_running = True
        on_outcome = functools.partial(self._handle_outcome, self._number)
        run_probe(self._loop, self._probe, self._timeout, on_outcome, with_hint=True)

    def _give_up(self, number: int) -> None:
        """End a test that has not returned in time. It has failed."""
        if self._is_awaited and number == self._number and not self._is_over():
            self._end_test(Outcome(NOT_FINISHED))

    def _handle_outcome(self, number: int, outcome: Outcome) -> None:
        self._is_running = False
        if self._is_awaited and number == self._number and not self._is_over():
            self._end_test(outcome)

    def _end_test(self, outcome: Outcome) -> None:
        self._is_awaited = False
        self._loop.after(self._every, self._start_test)
        if not outcome.was_run:
            return
        failures = 0 if outcome.result == READY else self._failures + 1
        if failures != self._failures:
            self._failures = failures
            self._on_result(failures, outcome.result)

    def _is_over(self) -> bool:
        """Return whether the monitor has stopped. Stop it if ``is_active`` returns False."""
        if not self._is_closed and not self._is_active():
            self._is_closed = True
            self._probe.close()
        return self._is_closed
