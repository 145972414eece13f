"""Read the statuses of one experiment or of all experiments repeatedly.

Each kind of objects is listed once and then watched. During an outage, the latest known statuses
are returned with a message.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from symphony.cluster import WatchedStatuses
from symphony.errors import NotFound
from symphony_kube.status.event_sources import health_results, pod_events
from symphony_kube.status.experiments import can_explain, explain_now
from symphony_kube.watch.all_experiments import ExperimentsWatch, list_together
from symphony_kube.watch.observations import ObservationStream

if TYPE_CHECKING:
    from symphony.status import ExperimentStatus
    from symphony_kube.api.client import Api
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.state.observe import ExperimentState, Observation

# A watch that the server has ended is usually continued much faster.
OUTAGE_SECONDS = 2.0


@contextmanager
def watch_experiment(experiment: KubeExperiment) -> Iterator[Callable[[], WatchedStatuses]]:
    """Return a context with a function for reading a status; see `Cluster.watch_experiment`.

    The function raises `NotFound` if the experiment does not exist or no longer exists.
    """
    setup = _SetupReasons(experiment)
    open_stream = partial(ObservationStream, experiment, reads_ready_logs=True)
    with ExitStack() as opened:
        stream = opened.enter_context(open_stream())
        observation = stream.first()
        setup.update(observation, stream.state)

        def read() -> WatchedStatuses:
            nonlocal stream, observation
            try:
                observation = stream.next(0) or observation
            except NotFound:
                # The experiment was launched again, or was deleted.
                stream.close()
                stream = opened.enter_context(open_stream())
                observation = stream.first()
            # Requests would wait for the end of an outage.
            if not stream.silent_seconds:
                setup.update(observation, stream.state)
            status = replace(
                setup.explain(observation.status), clock_offset=experiment.api.clock_offset
            )
            return WatchedStatuses([status], _outage(experiment.api, stream.silent_seconds))

        yield read


@contextmanager
def watch_experiments(
    api: Api, *, namespace: str | None
) -> Iterator[Callable[[], WatchedStatuses]]:
    """Return a context with a function for reading all statuses; see `Cluster.watch_experiments`.

    Raises `ApiError` if the user may not list the Pods of all namespaces, or of ``namespace``.
    """
    with ExperimentsWatch(api, namespace=namespace) as watch:
        watch.start()
        watch.start_names()
        yield lambda: WatchedStatuses(watch.read(), _outage(api, watch.silent_seconds))


@contextmanager
def list_statuses(api: Api, *, namespace: str | None) -> Iterator[Callable[[], WatchedStatuses]]:
    """Return a context with a function that returns the statuses of all experiments, which are read
    once; see `list_together`.
    """
    found = WatchedStatuses(list_together(api, namespace=namespace))
    yield lambda: found


class _SetupReasons:
    """The reasons why Pods are slow to be set up or ready, which are read from time to time.

    Such a Pod does not change, so the watch reports nothing.
    """

    def __init__(self, experiment: KubeExperiment) -> None:
        self._experiment = experiment
        # The latest statuses with and without reasons.
        self._explained: ExperimentStatus | None = None
        self._status: ExperimentStatus | None = None
        self._next = 0.0

    def update(self, observation: Observation, state: ExperimentState) -> None:
        """Read the reasons again if that is due, or if reasons are known of an earlier status."""
        status = observation.status
        has_reasons = self._explained != self._status
        is_due = time.monotonic() >= self._next or (has_reasons and status != self._status)
        # The reason of an end does not change any more.
        has_ended_newly = status != self._status and health_results.awaits_results(status)
        if not is_due or not (has_ended_newly or can_explain(status)):
            return
        self._explained = explain_now(self._experiment, status, state)
        self._status = status
        self._next = time.monotonic() + pod_events.SLOW_SETUP_SECONDS

    def explain(self, status: ExperimentStatus) -> ExperimentStatus:
        """Return ``status`` with the reasons, if they are known."""
        if status == self._status and self._explained is not None:
            return self._explained
        return status


def _outage(api: Api, seconds: float) -> str:
    """Return a message if the watches were lost ``seconds`` seconds ago."""
    if seconds <= OUTAGE_SECONDS:
        return ""
    return (
        f"the states may be out of date: {api.description} does not answer; "
        f"trying again for {api.timeouts.outage:g} s"
    )
