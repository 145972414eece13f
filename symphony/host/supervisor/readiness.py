"""Repeating the readiness test of a process until the process is ready."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from symphony.host.supervisor.event_loop import EventLoop
from symphony.host.supervisor.probes import Probe, ProbeError

# A probe that starts just before the deadline can still succeed within this time.
LAST_TIMEOUT_SECONDS = 0.25
# A probe that returns even later than this is no longer awaited. For example, a command in an
# uninterruptible system call cannot be killed.
RETURN_MARGIN_SECONDS = 1.0
FIRST_DELAY_SECONDS, LONGEST_DELAY_SECONDS = 0.05, 1.0
DELAY_FACTOR = 1.5


class ReadinessMonitor:
    """A monitor that probes one process until it is ready or the timeout has passed.

    A probe blocks, so it runs in a separate thread. All other work happens in the event loop. As
    soon as ``is_active`` returns False, the monitor stops without calling ``on_ready`` or
    ``on_timeout``. ``on_timeout`` is called with the last probe's error message, or with ``""`` if
    that probe could be completed. ``timeout`` is in seconds.
    """

    def __init__(
        self,
        loop: EventLoop,
        probe: Probe,
        timeout: float,
        *,
        is_active: Callable[[], bool],
        on_ready: Callable[[], None],
        on_timeout: Callable[[str], None],
    ) -> None:
        self._loop = loop
        self._probe = probe
        self._timeout = timeout
        self._is_active = is_active
        self._on_ready = on_ready
        self._on_timeout = on_timeout
        self._deadline = time.monotonic() + timeout
        self._delay = FIRST_DELAY_SECONDS
        self._is_closed = False

    def start(self) -> None:
        """Start to probe the process."""
        self._loop.after(self._timeout + RETURN_MARGIN_SECONDS, self._abandon_probe)
        self._start_probe()

    def _start_probe(self) -> None:
        """Run the next probe in a new thread, unless the process is no longer probed."""
        if self._is_over():
            return
        timeout = max(self._deadline - time.monotonic(), LAST_TIMEOUT_SECONDS)
        thread = threading.Thread(target=self._run_probe, args=(timeout,), daemon=True)
        try:
            thread.start()
        except Exception as exc:
            # For example, the user's limit on processes and threads has been reached.
            self._handle_result(False, f"the probe cannot be run: {exc}")

    def _run_probe(self, timeout: float) -> None:
        is_ready, error = False, ""
        try:
            is_ready = self._probe.is_ready(timeout)
        except ProbeError as exc:
            error = str(exc)
        except Exception as exc:
            error = f"the probe failed with {type(exc).__name__}: {exc}"
        self._loop.post(lambda: self._handle_result(is_ready, error))

    def _handle_result(self, is_ready: bool, error: str) -> None:
        if self._is_over():
            return
        remaining = self._deadline - time.monotonic()
        if is_ready:
            self._close()
            self._on_ready()
        elif remaining <= 0:
            self._close()
            self._on_timeout(error)
        else:
            self._loop.after(min(self._delay, remaining), self._start_probe)
            self._delay = min(self._delay * DELAY_FACTOR, LONGEST_DELAY_SECONDS)

    def _abandon_probe(self) -> None:
        """Report the timeout without waiting for a probe that does not return."""
        if not self._is_over():
            self._close()
            self._on_timeout("the last test has not finished")

    def _is_over(self) -> bool:
        """Return whether the monitor has stopped. Stop it if ``is_active`` returns False."""
        if not self._is_closed and not self._is_active():
            self._close()
        return self._is_closed

    def _close(self) -> None:
        self._is_closed = True
        self._probe.close()
