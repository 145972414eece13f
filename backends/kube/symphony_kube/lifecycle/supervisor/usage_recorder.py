"""Recording the resource use of a run in its supervisor.

The metrics server of a cluster measures all Pods at intervals, usually every 15 seconds, so it
determines how many samples there are.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from symphony.errors import SymphonyError
from symphony.status import State
from symphony_kube.api.resources import parse_time
from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.lifecycle.supervisor.supervisor_record import UsageStore
from symphony_kube.status.metrics_server import read_metrics, usage_of

if TYPE_CHECKING:
    from symphony.status import ExperimentStatus
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]

SHORTEST_PAUSE_SECONDS = 1.0
LONGEST_PAUSE_SECONDS = 10.0
# The pause after an error, such as a cluster that serves no metrics.
RETRY_SECONDS = 60.0
# How long to wait for a call that is in progress when the recording stops.
STOP_SECONDS = 10.0
# The next value is expected after this part of the time between the two latest ones. Until it
# arrives, the pauses are this part of the time that has passed since the latest one.
_EXPECTED = 0.75
_WAITING = 0.1


class UsageRecorder:
    """Records the resource use of the processes of a run in a thread while any of them is running.

    ``open_store`` returns the place for the samples. ``on_error`` is called with the message of
    each new error. After an error, the recorder tries again.
    """

    def __init__(
        self,
        experiment: KubeExperiment,
        open_store: Callable[[], UsageStore],
        on_error: Callable[[str], None],
    ) -> None:
        self._experiment = experiment
        self._open_store = open_store
        self._on_error = on_error
        self._last_message = ""
        self._store: UsageStore | None = None
        self._measurements = Measurements(0.0)
        self._pauses = Pauses()
        self._processes: Sequence[str] = ()
        self._stopped = threading.Event()
        self._thread: threading.Thread | None = None

    def update(self, run: SupervisedRun, status: ExperimentStatus) -> None:
        """Record from now on if the policies of the run require it and any process is running.

        Otherwise, stop recording.
        """
        is_running = any(process.state is State.RUNNING for process in status)
        if not run.policies.record_usage or not is_running:
            self.close()
            return
        self._processes = [process.name for process in status]
        if self._thread is None or not self._thread.is_alive():
            self._stopped = threading.Event()
            self._thread = threading.Thread(
                target=self._record, args=(self._stopped,), daemon=True, name="usage"
            )
            self._thread.start()

    def close(self) -> None:
        """Stop recording, and store the samples that are not stored yet."""
        if self._thread is not None:
            self._stopped.set()
            self._thread.join(STOP_SECONDS)

    def _record(self, stopped: threading.Event) -> None:
        pause = 0.0
        while not stopped.wait(pause):
            try:
                is_new = self._take_sample(stopped)
            except (SymphonyError, OSError) as exc:
                if not stopped.is_set():
                    self._report(str(exc))
                pause = RETRY_SECONDS
                continue
            self._last_message = ""
            pause = self._pauses.next(is_new=is_new)
        if self._store is not None:
            try:
                self._store.flush()
            except (SymphonyError, OSError) as exc:
                self._report(str(exc))

    def _report(self, message: str) -> None:
        if message != self._last_message:
            self._on_error(message)
        self._last_message = message

    def _take_sample(self, stopped: threading.Event) -> bool:
        """Record what was measured since the previous sample, and return whether there is any."""
        metrics = read_metrics(self._experiment, cancelled=stopped)
        if self._store is None:
            self._store = self._open_store()
            self._measurements = Measurements(self._store.latest)
        pods, at = self._measurements.select(metrics, self._store.latest)
        sample = usage_of(pods, self._processes, at)
        if sample.processes:
            self._store.append(sample)
        return bool(pods)


class Measurements:
    """Selects the Pods that the metrics server has measured since the previous sample.

    ``recorded`` is the time of the latest sample of an earlier supervisor, in seconds since the
    epoch.
    """

    def __init__(self, recorded: float) -> None:
        self._recorded = recorded
        self._by_pod: dict[str, float] = {}

    def select(self, metrics: Collection[Object], latest: float) -> tuple[list[Object], float]:
        """Return the metrics that are new, and the time of the newest of them.

        Nothing is new before the time of the ``latest`` sample, because samples are in the order of
        their times. Several metrics servers can answer in turn.
        """
        times: dict[str, float] = {}
        fresh = []
        for pod in metrics:
            name, at = pod["metadata"]["name"], parse_time(pod.get("timestamp")) or 0.0
            if at > self._by_pod.get(name, self._recorded):
                times[name] = at
                fresh.append(pod)
        newest = max(times.values(), default=0.0)
        if newest <= latest:
            return [], latest
        self._by_pod.update(times)
        return fresh, newest


class Pauses:
    """Determines when to ask a metrics server again, so that it is asked rarely in vain."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._latest = clock()

    def next(self, *, is_new: bool) -> float:
        """Return the pause in seconds after an answer that contains new values, or none."""
        now = self._clock()
        pause = (now - self._latest) * (_EXPECTED if is_new else _WAITING)
        if is_new:
            self._latest = now
        return min(LONGEST_PAUSE_SECONDS, max(SHORTEST_PAUSE_SECONDS, pause))
