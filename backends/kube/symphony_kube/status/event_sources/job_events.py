"""Find the results of Jobs that no longer exist in the events that Kubernetes has recorded.

A Job with a ``ttl`` is removed after it has finished, and anybody can delete a Job. Kubernetes
keeps the event with its result for some time, by default for one hour.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.status import ReasonCode, State
from symphony_kube.api.resources import items_of
from symphony_kube.render.attempt_names import first_name
from symphony_kube.state import reasons
from symphony_kube.state.job_status import BACKOFF_LIMIT_EXCEEDED, JobStatus
from symphony_kube.state.reasons import NO_REASON, Reason
from symphony_kube.status.event_sources.event_times import last_time

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment
    from symphony_kube.state.observe import ExperimentState

COMPLETED = "Completed"
_RESULTS = {
    COMPLETED: (State.SUCCEEDED, None),
    BACKOFF_LIMIT_EXCEEDED: (State.FAILED, ReasonCode.EXITED),
    "DeadlineExceeded": (State.FAILED, ReasonCode.DEADLINE_EXCEEDED),
}


def find_results_of_missing_jobs(experiment: KubeExperiment, state: ExperimentState) -> None:
    """Pass the results of Jobs that no longer exist to ``state``.

    Sends a request only if a Job is missing. Nothing happens if the user may not list events.
    """
    units = {experiment.scope.object_name(unit): unit for unit in state.known_units.missing_jobs}
    if not units:
        return
    path = f"/api/v1/namespaces/{experiment.namespace}/events"
    query = {"fieldSelector": "involvedObject.kind=Job"}
    try:
        events = items_of(experiment.api.call("GET", path, query=query))
    except BackendError:
        return
    state.use_results_of_missing_jobs(job_results(events, units, state.known_units.launched))


def job_results(
    events: Iterable[Mapping[str, Any]], units: Mapping[str, str], launched: float
) -> list[JobStatus]:
    """Return the Jobs of ``units`` whose results are among the events. Pure.

    ``units`` maps the names of Jobs to units. Events before ``launched`` are of an earlier launch.
    """
    found: dict[str, JobStatus] = {}
    for event in sorted(events, key=last_time):
        reason = str(event.get("reason"))
        name = str(event["involvedObject"].get("name"))
        # The names of the second and later attempts of a unit end with their number.
        unit = units.get(name) or units.get(first_name(name))
        time = last_time(event)
        # The times of objects and events are in whole seconds.
        if unit is None or reason not in _RESULTS or time < int(launched):
            continue
        state, code = _RESULTS[reason]
        cause = NO_REASON
        if code is not None:
            cause = Reason(reasons.with_message(reason, str(event.get("message") or "")), code)
        found[unit] = JobStatus(
            name=name,
            uid=str(event["involvedObject"].get("uid")),
            unit=unit,
            result=state,
            reason=cause,
            ended=time,
        )
    return list(found.values())
