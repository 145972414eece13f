"""Use a Pod's events to determine why its setup is stuck, or why a process is not ready. The Pod's
node reports the causes only in events.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from symphony.errors import BackendError
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony_kube.api.listing import list_all, reduced
from symphony_kube.api.resources import parse_time
from symphony_kube.state import reasons
from symphony_kube.state.reasons import CREATING, NO_REASON, Reason
from symphony_kube.status.event_sources import health_results, probe_results
from symphony_kube.status.event_sources.event_times import last_time

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

Object = Mapping[str, Any]

# A Pod's events are read if its setup has taken longer than this number of seconds.
SLOW_SETUP_SECONDS = 5.0


def explain_delays(
    experiment: KubeExperiment, status: ExperimentStatus, pods: Iterable[Object], *, now: float
) -> ExperimentStatus:
    """Return ``status`` with a reason for each process that is slow to be set up or to be ready,
    and with the last test of each process that was stopped because it was unhealthy.

    Send one request if there is such a process, and otherwise none. Return ``status`` unchanged if
    the events cannot be listed.
    """
    pods = list(pods)
    slow = _slow_pods(status, pods, now)
    has_results = probe_results.awaits_results(status, now) or health_results.awaits_results(status)
    if not slow and not has_results:
        return status
    selector = "involvedObject.kind=Pod"
    if len(slow) == 1 and not has_results:
        selector = f"involvedObject.uid={next(iter(slow))}"
    events = list_events(experiment, selector)
    if events is None:
        return status
    explained: dict[str, Reason] = {}
    for uid, names in slow.items():
        explained.update(dict.fromkeys(names, setup_problem(uid, events)))
    processes = [_with_reason(process, explained) for process in status]
    explained_status = replace(status, processes=tuple(processes))
    ordered = sorted(events, key=last_time)
    explained_status = probe_results.with_results(explained_status, pods, ordered, now)
    return health_results.HealthResults(pods, ordered).explain(explained_status)


def list_events(
    experiment: KubeExperiment, selector: str = "involvedObject.kind=Pod"
) -> list[Object] | None:
    """Return the events of Kubernetes that a selector of fields matches, or None if the events
    cannot be listed. Without them, a status is correct but less detailed.
    """
    path = f"/api/v1/namespaces/{experiment.namespace}/events"
    try:
        return list(
            list_all(experiment.api, path, reduced, query={"fieldSelector": selector}).items
        )
    except BackendError:
        return None


def is_setting_up(status: ExperimentStatus) -> bool:
    """Return whether the Pod of any process is being set up."""
    return any(_waits_for_setup(process) for process in status)


def can_explain(status: ExperimentStatus) -> bool:
    """Return whether the Pod of any process is being set up, or a process is not ready."""
    return is_setting_up(status) or any(map(probe_results.awaits_result, status))


def setup_problem(uid: str, events: Iterable[Object]) -> Reason:
    """Return the problem that blocks a Pod's setup, using the events in its namespace. Pure.

    Only warnings about failures after the Pod's last normal event are considered. A warning
    about a mount timeout does not state the cause of the timeout, so it is used only if there is no
    other warning. The reason is empty if there is no warning.
    """
    of_pod = [event for event in events if event["involvedObject"].get("uid") == uid]
    of_pod.sort(key=last_time)
    warnings: list[Object] = []
    for event in of_pod:
        if event.get("type") == "Normal":
            warnings.clear()
        elif str(event.get("reason", "")).startswith("Failed"):
            warnings.append(event)
    if not warnings:
        return NO_REASON
    informative = [event for event in warnings if not _is_mount_timeout(event)]
    event = (informative or warnings)[-1]
    return reasons.setup_failure(event["reason"], str(event.get("message") or ""))


def _is_mount_timeout(event: Object) -> bool:
    return "timed out waiting for the condition" in str(event.get("message"))


def _waits_for_setup(process: ProcessStatus) -> bool:
    return process.state is State.PENDING and process.reason == CREATING.text


def _slow_pods(
    status: ExperimentStatus, pods: Iterable[Object], now: float
) -> dict[str, list[str]]:
    """Return the names of the processes in each Pod that is slow to set up, keyed by Pod UID."""
    creating = {process.name for process in status if _waits_for_setup(process)}
    slow: dict[str, list[str]] = {}
    if not creating:
        return slow
    for pod in pods:
        names = [item["name"] for item in pod["spec"]["containers"] if item["name"] in creating]
        start_time = (pod.get("status") or {}).get("startTime")
        since = parse_time(start_time or pod["metadata"].get("creationTimestamp"))
        if names and since is not None and now - since > SLOW_SETUP_SECONDS:
            slow[pod["metadata"]["uid"]] = names
    return slow


def _with_reason(process: ProcessStatus, explained: Mapping[str, Reason]) -> ProcessStatus:
    reason = explained.get(process.name, NO_REASON)
    if not reason.text:
        return process
    return replace(process, reason=reason.text, reason_code=reason.code)
