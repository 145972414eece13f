"""Repeating the readiness test of a process until the process is ready."""

from __future__ import annotations

import time
from collections.abc import Callable

from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.supervised.supervisor.execution.probe_thread import (
    NOT_FINISHED,
    RETURN_MARGIN_SECONDS,
    run_probe,
)
from symphony.supervised.supervisor.execution.probes import READY, Probe

# A probe that starts just before the deadline can still succeed within this time.
LAST_TIMEOUT_SECONDS = 0.25
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.05, 1.0
# After the deadline, a process that may never be ready is tested less often.
LONGEST_LATE_DELAY_SECONDS = 10.0
DELAY_FACTOR = 1.5
# The first result is reported after this time, because most processes are ready earlier. The pause
# between two reports doubles, so that the event log stays small.
FIRST_REPORT_SECONDS, LONGEST_REPORT_PAUSE_SECONDS = 1.0, 600.0


class ReadinessMonitor:
    """A monitor that probes one process until it is ready.

    A probe blocks, so it runs in a separate thread. All other work happens in the event loop. As
    soon as ``is_active`` returns False, the monitor stops without calling another function.
    ``on_ready`` is called once. If ``timeout`` seconds have passed before, ``on_timeout`` is called
    with the result of the last probe, and the probes continue. If ``timeout`` is None, this has
    happened earlier. ``on_result`` is called when the result has changed, but not often.
    """

    def __init__(
        self,
        loop: EventLoop,
        probe: Probe,
        timeout: float | None,
        *,
        is_active: Callable[[], bool],
        on_ready: Callable[[], None],
        on_timeout: Callable[[str], None],
        on_result: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._probe = probe
        self._timeout = timeout or 0.0
        self._is_late = timeout is None
        self._is_active = is_active
        self._on_ready = on_ready
        self._on_timeout = on_timeout
        self._on_result = on_result
        now = time.monotonic()
        self._deadline = now + self._timeout
        self._delay = FIRST_DELAY_SECONDS
        self._reported = ""
        self._report_pause = FIRST_REPORT_SECONDS
        self._next_report = now + FIRST_REPORT_SECONDS
        self._is_closed = False

    def start(self) -> None:
        """Start to probe the process."""
        if not self._is_late:
            self._loop.after(self._timeout + RETURN_MARGIN_SECONDS, self._report_timeout)
        self._start_probe()

    def _start_probe(self) -> None:
        """Run the next probe in a new thread, unless the process is no longer probed."""
        if self._is_over():
            return
        now = time.monotonic()
        timeout = self._probe.usual_timeout
        if not self._is_late:
            timeout = min(timeout, max(self._deadline - now, LAST_TIMEOUT_SECONDS))
        is_last = not self._is_late and now >= self._deadline
        is_reported = is_last or now >= self._next_report
        run_probe(
            self._loop,
            self._probe,
            timeout,
            lambda outcome: self._handle_result(outcome.result, is_reported),
            with_hint=is_reported,
        )

    def _handle_result(self, result: str, is_reported: bool) -> None:
        if self._is_over():
            return
        if result == READY:
            self._close()
            self._on_ready()
            return
        now = time.monotonic()
        if not self._is_late and now >= self._deadline:
            self._report_timeout(result)
        elif is_reported and result != self._reported:
            self._note_report(result)
            self._on_result(result)
        longest = LONGEST_LATE_DELAY_SECONDS if self._is_late else LONGEST_DELAY_SECONDS
        delay = self._delay
        if not self._is_late:
            delay = min(delay, self._deadline - now)
        self._loop.after(delay, self._start_probe)
        self._delay = min(self._delay * DELAY_FACTOR, longest)

    def _report_timeout(self, result: str = NOT_FINISHED) -> None:
        """Report the timeout. Do not wait for a probe that does not return."""
        if self._is_late or self._is_over():
            return
        self._is_late = True
        self._note_report(result)
        self._on_timeout(result)

    def _note_report(self, result: str) -> None:
        self._reported = result
        self._next_report = time.monotonic() + self._report_pause
        self._report_pause = min(2 * self._report_pause, LONGEST_REPORT_PAUSE_SECONDS)

    def _is_over(self) -> bool:
        """Return whether the monitor has stopped. Stop it if ``is_active`` returns False."""
        if not self._is_closed and not self._is_active():
            self._close()
        return self._is_closed

    def _close(self) -> None:
        self._is_closed = True
        self._probe.close()
