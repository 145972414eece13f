"""List a cluster's experiments, and determine the status of an experiment."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from symphony.cluster.matching import experiment_not_found
from symphony.errors import SymphonyError
from symphony.status import ExperimentStatus
from symphony.support.names import is_name
from symphony_kube.api import labels
from symphony_kube.api.client import ACCEPT_METADATA_LIST, Api, Object
from symphony_kube.api.errors import ApiError
from symphony_kube.api.listing import list_all
from symphony_kube.api.resources import NAMESPACES, collection_path, items_of, labels_of
from symphony_kube.record.stored_record import read_stored_record
from symphony_kube.state.observe import BACKEND, ExperimentState
from symphony_kube.state.observed_objects import JOB_SETS, JOBS, PODS
from symphony_kube.status.event_sources import pod_events
from symphony_kube.status.event_sources.job_events import find_results_of_missing_jobs
from symphony_kube.status.list_objects import list_objects, list_pods
from symphony_kube.status.permission_errors import refused
from symphony_kube.status.queue_reasons import explain_queues, waits_in_queue

if TYPE_CHECKING:
    from symphony_kube.api.background import Background
    from symphony_kube.api.kube_experiment import KubeExperiment

NOTHING_LEFT = (
    "nothing of it is left but its namespace: its Pods were deleted, or its launch was interrupted"
)
EXPERIMENTS_SELECTOR = f"{labels.MANAGED_SELECTOR},{labels.EXPERIMENT}"


def list_experiments(api: Api, *, namespace: str | None) -> list[str]:
    """Return the names of the experiments in ``namespace``.

    If ``namespace`` is None, return the names of all experiments that have their own namespace.
    """
    if namespace is not None:
        return _experiments_in_namespace(api, namespace)
    try:
        answer = api.call("GET", NAMESPACES, query={"labelSelector": EXPERIMENTS_SELECTOR})
    except ApiError as exc:
        if exc.status != 403:
            raise
        advice = "choose a namespace that you may use with namespace="
        raise refused(exc, "list experiments", advice) from exc
    names = []
    for namespace_object in items_of(answer):
        metadata = namespace_object["metadata"]
        if metadata["labels"][labels.EXPERIMENT] == metadata["name"]:
            names.append(metadata["name"])
    return sorted(names)


def _experiments_in_namespace(api: Api, namespace: str) -> list[str]:
    """Return the names of the experiments that have objects in a namespace.

    Kinds of objects that the user may not list are skipped. Raises `ApiError` if the user may not
    list any kind.
    """
    found: set[str] = set()
    refusals: list[ApiError] = []
    kinds = ("Pod", "Job", "Service", "Secret")
    for kind in kinds:
        try:
            names = list_all(
                api,
                collection_path(kind, namespace),
                lambda item: labels_of(item)[labels.EXPERIMENT],
                query={"labelSelector": EXPERIMENTS_SELECTOR},
                accept=ACCEPT_METADATA_LIST,
            ).items
        except ApiError as exc:
            if exc.status != 403:
                raise
            refusals.append(exc)
            continue
        found.update(names)
    if len(refusals) == len(kinds):
        action = f"list experiments in namespace {namespace!r}"
        raise refused(refusals[0], action, "ask for the right to list Pods")
    return sorted(found)


def experiment_status(
    experiment: KubeExperiment, pods_request: Background[list[Object]] | None = None
) -> ExperimentStatus:
    """Return an experiment's status. Raises `NotFound` if the experiment does not exist.

    This function lists the experiment's Pods, its Jobs if it has any, and the events of Pods if a
    process is slow to be set up or to be ready, or was unhealthy. ``pods_request`` is a call of
    `list_pods` that has already begun.
    """
    state, pods = observe_once(experiment, pods_request)
    if any(unit.logs for unit in state.units):
        from symphony_kube.status.ready_logs import complete_readiness

        complete_readiness(experiment, state)
    return explain(experiment, current_status(experiment, state), pods, state)


def observe_once(
    experiment: KubeExperiment, pods_request: Background[list[Object]] | None = None
) -> tuple[ExperimentState, list[Object]]:
    """Return the state of an experiment, and a list of its Pods.

    ``pods_request`` is a call of `list_pods` that has already begun.
    """
    state = ExperimentState(experiment.name)
    pods = list_pods(experiment) if pods_request is None else pods_request.result()
    state.replace(PODS, pods)
    are_jobs_listed = state.known_units.has_jobs or state.empty
    if are_jobs_listed:
        state.replace(JOBS, list_if_possible(lambda: list_objects(experiment, "Job")))
    complete_state(experiment, state)
    if state.may_have_missed_launch:
        pods = list_again(experiment, state)
    elif state.known_units.has_jobs and not are_jobs_listed:
        # The Pod with the roster was deleted, so that only the stored record names the Jobs.
        state.replace(JOBS, list_if_possible(lambda: list_objects(experiment, "Job")))
    if state.known_units.has_job_sets or state.empty:
        state.replace(JOB_SETS, list_if_possible(lambda: list_objects(experiment, "JobSet")))
    return state, pods


def list_again(experiment: KubeExperiment, state: ExperimentState) -> list[Object]:
    """List the Pods, and the Jobs if there are any, after the stored roster was read, and return
    the Pods.

    All objects of a launch that was complete at that time are listed, unless they were deleted.
    """
    pods = list_pods(experiment)
    state.replace(PODS, pods)
    if state.known_units.has_jobs:
        state.replace(JOBS, list_if_possible(lambda: list_objects(experiment, "Job")))
    return pods


def complete_state(experiment: KubeExperiment, state: ExperimentState) -> None:
    """Add to ``state`` what the objects of an experiment do not show because some are missing.

    The stored roster is read if no Pod and no Job has the roster, and events if a Job is missing.
    """
    if state.needs_stored_record and is_name(experiment.name):
        state.record.use_stored(read_stored_record(experiment))
    find_results_of_missing_jobs(experiment, state)


def current_status(experiment: KubeExperiment, state: ExperimentState) -> ExperimentStatus:
    """Return the status of the experiment with this ``state``.

    Raises `NotFound` if the experiment does not exist.
    """
    if not state.is_known:
        return status_without_objects(experiment)
    return replace(
        state.observe(experiment.api.now()).status, clock_offset=experiment.api.clock_offset
    )


def can_explain(status: ExperimentStatus) -> bool:
    """Return whether `explain` can add reasons to a status."""
    return pod_events.can_explain(status) or any(map(waits_in_queue, status))


def explain(
    experiment: KubeExperiment,
    status: ExperimentStatus,
    pods: Iterable[Object],
    state: ExperimentState,
) -> ExperimentStatus:
    """Return ``status`` with a reason for each process that is slow to be set up or to be ready, or
    that waits in a queue, and with the last test of each process that was unhealthy.
    """
    status = explain_queues(experiment, status, state.objects.processes_of)
    return pod_events.explain_delays(experiment, status, pods, now=experiment.api.now())


def explain_now(
    experiment: KubeExperiment, status: ExperimentStatus, state: ExperimentState
) -> ExperimentStatus | None:
    """Return ``status`` with the reasons of `explain`, or None if the Pods cannot be listed now."""
    try:
        pods = list_pods(experiment)
    except SymphonyError:
        return None
    return explain(experiment, status, pods, state)


def list_if_possible(list_objects: Callable[[], Iterable[Object]]) -> list[Object]:
    """Return the Jobs or JobSets that ``list_objects`` returns, or an empty list if the user may
    not list them or the cluster does not know JobSets.

    Without these objects, the status depends on the Pods alone.
    """
    try:
        return list(list_objects())
    except ApiError as exc:
        if exc.status not in (403, 404):
            raise
        return []


def location(api: Api, namespace: str | None) -> str:
    """Return where experiments are, for messages. ``namespace`` is the shared one, or None."""
    if namespace is None:
        return f"the cluster of {api.description}"
    return f"namespace {namespace} of {api.description}"


def status_without_objects(experiment: KubeExperiment) -> ExperimentStatus:
    """Return the status of an experiment that has no Pod, no Job and no roster.

    Raises `NotFound` if the experiment has no other objects either.
    """
    namespace = experiment.namespace if experiment.scope.shared else None
    try:
        known = list_experiments(experiment.api, namespace=namespace)
    except ApiError as exc:
        if exc.status != 403:
            raise
        raise experiment_not_found(experiment.name, []) from exc
    if experiment.name not in known:
        raise experiment_not_found(experiment.name, known, location(experiment.api, namespace))
    return ExperimentStatus(name=experiment.name, backend=BACKEND, note=NOTHING_LEFT)
