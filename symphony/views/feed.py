"""Observing an experiment in threads, for the views.

A feed calls a function with each update. The function is called in different threads, one call at a
time. Errors become updates: an experiment can be deleted and launched again, and a server can be
unreachable for a while.

The threads are daemons. A thread that waits for the next event or the next line of output cannot be
interrupted. After `close`, it ends with the next event or line, or with the program.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence

from symphony.cluster import Cluster
from symphony.cluster.hidden_output import (
    events_without_secrets,
    status_without_secrets,
    without_secrets,
)
from symphony.errors import NotFound, SymphonyError, Unsupported
from symphony.events import ExperimentEvent
from symphony.log_blocks import LogBlock
from symphony.status import ExperimentStatus
from symphony.support.hidden_values import HiddenValues
from symphony.views.experiment_model import (
    EventSeen,
    Gone,
    OutageSeen,
    StatusSeen,
    TopologySeen,
    Update,
    UsageSeen,
    UsageUnavailable,
)

# The status is read when an event has happened, and otherwise at this interval, because a killed
# supervisor writes no event.
STATUS_INTERVAL_SECONDS = 1.0
# The shortest time between two readings of the status while many events happen.
MIN_INTERVAL_SECONDS = 0.05
# The time between two attempts after an error.
RETRY_SECONDS = 1.0
# How far before an error the output is read again. Lines that were on their way were lost.
OVERLAP_SECONDS = 10.0
# The number of earlier lines of each process that a view shows first.
FIRST_LINES = 1_000


class ExperimentFeed:
    """The updates of one experiment, until `close` is called.

    The resource use is only observed while `watch_usage` is set.
    """

    def __init__(
        self, cluster: Cluster, experiment: str, on_update: Callable[[Update], None]
    ) -> None:
        self.cluster = cluster
        self.experiment = experiment
        self._on_update = on_update
        self._lock = threading.Lock()
        self._is_closed = threading.Event()
        # Set when the status should be read now.
        self._is_due = threading.Event()
        # Set when there is a new run, whose events and samples must be read from the beginning.
        self._has_new_events = threading.Event()
        self._has_new_usage = threading.Event()
        self._usage_thread: threading.Thread | None = None
        # The values that are hidden in the statuses of the present run.
        self._hidden = HiddenValues([])
        # Set unless the feed is paused.
        self._is_active = threading.Event()
        self._is_active.set()

    def start(self) -> None:
        """Start to observe the experiment. Returns at once."""
        self._start_thread(self._watch_status, "status")
        self._start_thread(self._watch_events, "events")

    def watch_usage(self) -> None:
        """Start to observe the resource use, unless it is being observed already."""
        if self._usage_thread is None:
            self._usage_thread = self._start_thread(self._watch_usage, "usage")

    def refresh(self) -> None:
        """Read the status now, for example after a control of the experiment."""
        self._is_due.set()

    def pause(self) -> None:
        """Do not read the status and the resource use until `resume` is called."""
        self._is_active.clear()

    def resume(self) -> None:
        """Continue after `pause`."""
        self._is_active.set()
        self._has_new_usage.set()
        self._is_due.set()

    def close(self) -> None:
        """Stop observing the experiment. No update is sent afterwards."""
        with self._lock:
            self._is_closed.set()
        for event in (self._is_due, self._has_new_events, self._has_new_usage, self._is_active):
            event.set()

    def _start_thread(self, run: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, daemon=True, name=f"{name} of {self.experiment}")
        thread.start()
        return thread

    def _send(self, update: Update) -> None:
        with self._lock:
            if not self._is_closed.is_set():
                self._on_update(update)

    # --- status and topology ---

    def _watch_status(self) -> None:
        """Send each change of the status and of the topology."""
        previous: ExperimentStatus | None = None
        while self._wait_until_active():
            try:
                with self.cluster.watch_experiment(self.experiment) as read:
                    while self._is_observed():
                        watched = read()
                        for status in watched.statuses:
                            self._see_status(previous, status)
                            previous = status
                        self._send(OutageSeen(watched.outage))
                        self._wait_until_due(STATUS_INTERVAL_SECONDS)
            except NotFound as exc:
                previous = None
                self._send(Gone(str(exc)))
                self._wait_until_due(RETRY_SECONDS)
            except SymphonyError as exc:
                self._send(OutageSeen(f"the states may be out of date: {exc}; trying again"))
                self._wait_until_due(RETRY_SECONDS)

    def _wait_until_active(self) -> bool:
        """Wait until the feed is not paused. Return False if it was closed."""
        self._is_active.wait()
        return not self._is_closed.is_set()

    def _is_observed(self) -> bool:
        """Return whether the feed is neither paused nor closed."""
        return self._is_active.is_set() and not self._is_closed.is_set()

    def _wait_until_due(self, seconds: float) -> None:
        self._is_closed.wait(MIN_INTERVAL_SECONDS)
        self._is_due.wait(seconds - MIN_INTERVAL_SECONDS)
        self._is_due.clear()

    def _see_status(self, previous: ExperimentStatus | None, status: ExperimentStatus) -> None:
        """Send a status, and read everything that depends on it again if necessary."""
        if previous is None or previous.created != status.created:
            self._hidden = self.cluster.hidden_values(self.experiment)
        status = status_without_secrets(status, lambda: self._hidden)
        self._send(StatusSeen(status))
        is_new_run = previous is None or previous.created != status.created
        has_resumed = previous is not None and previous.ended and not status.ended
        if is_new_run or has_resumed:
            self._has_new_events.set()
            self._has_new_usage.set()
        if is_new_run or _names(previous) != _names(status):
            self._send_topology()

    def _send_topology(self) -> None:
        try:
            topology = self.cluster.describe_topology(self.experiment)
        except (Unsupported, NotFound):
            # The views then show a table only.
            return
        self._send(TopologySeen(topology))

    # --- events ---

    def _watch_events(self) -> None:
        """Send the events of each run, from the first one."""
        reading = 0
        while self._wait_for_run(self._has_new_events):
            reading += 1
            try:
                events = self.cluster.iter_events(self.experiment, follow=True)
                hidden = self.cluster.hidden_values(self.experiment)
                for event in events_without_secrets(events, hidden):
                    self._send(EventSeen(event, reading))
                    self._is_due.set()
                    if self._is_closed.is_set():
                        return
            except SymphonyError:
                # The thread of the status reports the same problem.
                self._retry(self._has_new_events)
            self._is_due.set()

    # --- resource use ---

    def _watch_usage(self) -> None:
        """Send the recorded resource use of each run, and then the present one."""
        while self._wait_for_run(self._has_new_usage):
            try:
                for usage in self.cluster.recorded_usage(self.experiment):
                    self._send(UsageSeen(usage))
                for usage in self.cluster.iter_usage(self.experiment):
                    self._send(UsageSeen(usage))
                    if not self._is_observed():
                        break
            except Unsupported as exc:
                self._send(UsageUnavailable(str(exc)))
            except SymphonyError:
                self._retry(self._has_new_usage)

    def _wait_for_run(self, has_new_run: threading.Event) -> bool:
        """Wait until there is a new run. Return False if the feed was closed."""
        has_new_run.wait()
        has_new_run.clear()
        return not self._is_closed.is_set()

    def _retry(self, has_new_run: threading.Event) -> None:
        """Read a run again after a while, because of an error."""
        has_new_run.wait(RETRY_SECONDS)
        has_new_run.set()


class OutputFeed:
    """The output and the events of some processes, or of all processes if ``processes`` is None,
    until `close` is called.

    ``on_output`` is called with each block and event, and with None when no more output follows
    until the experiment is launched again. The output begins with the last ``first_lines`` lines of
    each process.
    """

    def __init__(
        self,
        cluster: Cluster,
        experiment: str,
        processes: Sequence[str] | None,
        on_output: Callable[[LogBlock | ExperimentEvent | None], None],
        *,
        first_lines: int = FIRST_LINES,
    ) -> None:
        self._cluster = cluster
        self._experiment = experiment
        self._processes = processes
        self._on_output = on_output
        self._first_lines = first_lines
        self._lock = threading.Lock()
        self._is_closed = threading.Event()

    def start(self) -> None:
        """Start to read the output. Returns at once."""
        threading.Thread(
            target=self._follow, daemon=True, name=f"output of {self._experiment}"
        ).start()

    def close(self) -> None:
        """Stop reading the output. ``on_output`` is not called afterwards."""
        with self._lock:
            self._is_closed.set()

    def _send(self, output: LogBlock | ExperimentEvent | None) -> None:
        with self._lock:
            if not self._is_closed.is_set():
                self._on_output(output)

    def _follow(self) -> None:
        """Follow the output of the present run, and then of each later one."""
        position = _OutputPosition()
        while not self._is_closed.is_set():
            try:
                created = self._cluster.describe_experiment(self._experiment).created
                for item in position.new_items(self._iter_output(position)):
                    self._send(item)
                    if self._is_closed.is_set():
                        return
                self._send(None)
                self._wait_for_other_run(created)
                position = _OutputPosition()
            except NotFound:
                position = _OutputPosition()
                self._is_closed.wait(RETRY_SECONDS)
            except SymphonyError:
                # The feed of the status reports the problem.
                self._is_closed.wait(RETRY_SECONDS)

    def _iter_output(self, position: _OutputPosition) -> Iterator[LogBlock | ExperimentEvent]:
        """Return the last lines and all later output, or what was written since the position."""
        since = position.age()
        tail = self._first_lines if since is None else None
        items = self._cluster.iter_output(
            self._experiment, self._processes, follow=True, tail=tail, since=since, events=True
        )
        return without_secrets(items, self._cluster.hidden_values(self._experiment))

    def _wait_for_other_run(self, created: float | None) -> None:
        """Wait until the experiment was launched again, or has running processes again."""
        while not self._is_closed.wait(STATUS_INTERVAL_SECONDS):
            try:
                status = self._cluster.describe_experiment(self._experiment)
            except SymphonyError:
                continue
            if status.created != created or not status.ended:
                return


class _OutputPosition:
    """The position in the output of a run, from which reading continues after an error."""

    def __init__(self) -> None:
        # The local time of the latest output, because the clock of the backend can be another one.
        self._read_until: float | None = None
        # The latest time of each process's lines, and of its events.
        self._latest: dict[tuple[type, str | None], float] = {}

    def age(self) -> float | None:
        """Return how many seconds ago the output begins that must be read again, or None if nothing
        has been read.
        """
        if self._read_until is None:
            return None
        return time.monotonic() - self._read_until + OVERLAP_SECONDS

    def new_items(
        self, items: Iterator[LogBlock | ExperimentEvent]
    ) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the items that have not been read yet. Items without a time are always new."""
        seen = dict(self._latest)
        for item in items:
            self._read_until = time.monotonic()
            key = type(item), item.process
            if item.at is not None:
                if item.at <= seen.get(key, -math.inf):
                    continue
                self._latest[key] = item.at
            yield item


def _names(status: ExperimentStatus | None) -> list[str]:
    return [] if status is None else [process.name for process in status]
