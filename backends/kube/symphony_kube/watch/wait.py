"""Wait until an experiment's processes have reached a given state."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from symphony.cluster.matching import still_awaited, wait_timeout
from symphony.errors import LaunchFailed
from symphony.status import ExperimentStatus, ReasonCode, State
from symphony_kube.state import reasons
from symphony_kube.status.event_sources import health_results, pod_events
from symphony_kube.status.experiments import can_explain, explain_now
from symphony_kube.watch.observations import ObservationStream

if TYPE_CHECKING:
    from symphony.cluster import OnChange
    from symphony.cluster.matching import Until
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.render.roster import Roster
    from symphony_kube.state.observe import ExperimentState, Observation

# How long a wait without a time limit continues while an image cannot be pulled. Kubernetes retries
# for as long as the Pod exists, and a registry can be unavailable for some minutes.
IMAGE_SECONDS = 300.0
# After the deletion of one Pod, wait this long for the deletion of the other Pods.
DELETION_SETTLE_SECONDS = 1.0
# The longest pause between two looks at why a process is not ready.
LONGEST_PAUSE_SECONDS = 60.0


def wait(
    experiment: KubeExperiment,
    *,
    timeout: float | None,
    on_change: OnChange,
    until: Until = "ended",
    processes: Sequence[str] | None = None,
) -> ExperimentStatus:
    """Wait until every process has reached the state ``until``, and return the status.

    See `Cluster.wait`. This function lists the objects of each kind once, and then watches for
    changes. It calls ``on_change`` with every status. If a Pod takes a long time to be set up or to
    be ready, it also reads the Pod's events, and calls ``on_change`` with a status that explains
    the delay.

    Raises `LaunchFailed` if a process is to be started or ready, but waits for another process
    whose image cannot be pulled. Such a process would wait forever. Without a ``timeout``, raises
    `TimeoutError` when the image of an awaited process cannot be pulled for `IMAGE_SECONDS`.
    """
    deadline = None if timeout is None else time.monotonic() + timeout
    unpulled_since: dict[str, float] = {}
    with ObservationStream(experiment, reads_ready_logs=until == "ready") as stream:
        observation = stream.first()
        while True:
            if on_change is not None:
                on_change(observation.status)
            awaited = still_awaited(observation.status, until, processes)
            if until != "ended":
                _check_awaited_images(stream.units, observation)
            if awaited:
                limit = deadline
                if timeout is None:
                    limit = _image_deadline(observation.status, awaited, unpulled_since)
                later = _next(experiment, stream, observation, limit, on_change)
                if later is None and timeout is None:
                    raise _image_timeout(observation.status, unpulled_since)
                if later is None:
                    raise wait_timeout(observation.status, until, awaited, timeout or 0.0)
            elif observation.deleted_units:
                # Kubernetes deletes an experiment's Pods one after the other. If all Pods are
                # deleted, reading the next observation raises NotFound.
                later = stream.next(DELETION_SETTLE_SECONDS)
                if later is None:
                    return observation.status
            else:
                return _with_test_results(experiment, observation.status, stream.state)
            observation = later


def _with_test_results(
    experiment: KubeExperiment, status: ExperimentStatus, state: ExperimentState
) -> ExperimentStatus:
    """Return a status with the results of the tests of processes that are not ready in time or were
    unhealthy.
    """
    is_late = any(process.not_ready_in_time for process in status)
    if not is_late and not health_results.awaits_results(status):
        return status
    return explain_now(experiment, status, state) or status


def _image_deadline(
    status: ExperimentStatus, awaited: Sequence[str], since: dict[str, float]
) -> float | None:
    """Return when to stop waiting for images that cannot be pulled, or None if all can be.

    ``since`` maps processes to the times at which their images were first reported.
    """
    unpulled = [
        process.path
        for process in status
        if process.path in awaited and process.reason_code is ReasonCode.IMAGE_UNAVAILABLE
    ]
    for path in list(since):
        if path not in unpulled:
            del since[path]
    for path in unpulled:
        since.setdefault(path, time.monotonic())
    return min(since.values()) + IMAGE_SECONDS if since else None


def _image_timeout(status: ExperimentStatus, since: dict[str, float]) -> TimeoutError:
    path = min(since, key=lambda path: since[path])
    reason = next(process.reason for process in status if process.path == path)
    return TimeoutError(
        f"process {path!r} of experiment {status.name!r} cannot start, and has been tried for "
        f"{IMAGE_SECONDS:g} s: {reason}; set an image that the cluster can pull, or set a timeout "
        "to wait longer"
    )


def _check_awaited_images(roster: Roster, observation: Observation) -> None:
    """Raise `LaunchFailed` if a unit waits for a process whose image cannot be pulled."""
    for unit in roster:
        if unit.name not in observation.missing_units:
            continue
        for name in unit.starts_after:
            container = observation.containers.get(name)
            if container is None or container.state is not State.PENDING:
                continue
            reason_word = container.reason.partition(":")[0]
            if reason_word in reasons.IMAGE_NOT_FOUND_REASONS:
                raise LaunchFailed(
                    f"process {name!r}, for which {unit.name!r} waits, cannot start: "
                    f"{container.reason}; set an image that the cluster can pull"
                )


def _next(
    experiment: KubeExperiment,
    stream: ObservationStream,
    observation: Observation,
    deadline: float | None,
    on_change: OnChange,
) -> Observation | None:
    """Return the next observation, or None if there is none before the deadline.

    A Pod that cannot be set up, or that is not ready, does not change, so the watch reports
    nothing. The reason for the delay is therefore read periodically from the Pod's events and
    passed to ``on_change``. The reason why a process is not ready is read less and less often.
    """
    if on_change is None or not can_explain(observation.status):
        return stream.next(_seconds_left(deadline))
    reported = observation.status
    pause = pod_events.SLOW_SETUP_SECONDS
    while True:
        seconds_left = _seconds_left(deadline)
        if seconds_left is not None and seconds_left <= 0:
            return None
        later = stream.next(pause if seconds_left is None else min(pause, seconds_left))
        if later is not None:
            return later
        # An error is ignored, because the watch receives the same error and determines whether it
        # is temporary.
        status = explain_now(experiment, observation.status, stream.state)
        if not pod_events.is_setting_up(observation.status):
            pause = min(2 * pause, LONGEST_PAUSE_SECONDS)
        if status is not None and status != reported:
            reported = status
            on_change(status)


def _seconds_left(deadline: float | None) -> float | None:
    return None if deadline is None else deadline - time.monotonic()
