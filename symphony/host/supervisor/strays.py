"""Stopping the processes of a run that have left the process groups of its processes."""

from __future__ import annotations

import time
from collections.abc import Collection

from symphony.host.supervisor.event_loop import ErrorCallback
from symphony.host.supervisor.process_host import ProcessHost
from symphony.host.supervisor.supervised_process import ProcessTable


class Strays:
    """The processes of one run that are in none of the process groups of its running processes.

    ``on_error`` is called with an error that does not prevent the other steps of a stop.
    """

    def __init__(self, processes: ProcessTable, host: ProcessHost, on_error: ErrorCallback) -> None:
        self._processes = processes
        self._host = host
        self._on_error = on_error
        self._deadline: float | None = None
        self.skips_grace = False
        """True if the processes are killed at once."""

    def stop_all(self) -> bool:
        """Send SIGTERM to each stray when it is found, and SIGKILL after the experiment's longest
        grace period. Return whether there were any.
        """
        try:
            return self._stop_all()
        except Exception as exc:
            # The processes of the run cannot be listed. All other steps of a stop must follow.
            self._on_error(exc)
            return False

    def _stop_all(self) -> bool:
        deadline = self._deadline
        is_grace_over = self._is_grace_over(deadline)
        were_any = self._host.stop_strays(self._processes.leaders(), kill=is_grace_over)
        if were_any and deadline is None:
            longest_grace = max(process.spec.grace for process in self._processes)
            self._deadline = time.monotonic() + longest_grace
        return were_any

    def reset(self) -> None:
        """Give the strays of the next execution a grace period of their own."""
        self._deadline = None

    def stop_those_of(self, names: Collection[str], kill_time: float) -> bool:
        """Stop the strays that descend from exited processes.

        Send SIGTERM once to each of them and, from ``kill_time`` on the monotonic clock on,
        SIGKILL. Return whether there were any.
        """
        is_grace_over = self._is_grace_over(kill_time)
        leaders = self._processes.leaders()
        return self._host.stop_strays(leaders, kill=is_grace_over, owners=names)

    def _is_grace_over(self, kill_time: float | None) -> bool:
        """Return whether strays are killed now. ``kill_time`` is on the monotonic clock."""
        is_late = kill_time is not None and time.monotonic() >= kill_time
        return self.skips_grace or is_late
