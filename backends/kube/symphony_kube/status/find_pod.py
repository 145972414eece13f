"""Find a process's Pod and container."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from symphony.cluster.matching import find_status
from symphony.errors import NotFound
from symphony_kube.api import labels
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.listing import list_all
from symphony_kube.api.resources import collection_path
from symphony_kube.state.pod_parser import parse_pod
from symphony_kube.state.pod_status import ContainerRef
from symphony_kube.status import experiments
from symphony_kube.status.permission_errors import missing_right

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def list_containers(experiment: KubeExperiment, unit: str | None = None) -> list[ContainerRef]:
    """Return an experiment's containers, or those of ``unit`` if it is set.

    The containers of removed units are included. The containers are sorted by the creation times of
    their Pods, oldest first.
    """
    if unit is None:
        refs = _list_refs(experiment, experiment.selector)
    else:
        refs = _list_refs(experiment, f"{experiment.selector},{labels.UNIT}={unit}")
        if any(ref.attempt > 1 for ref in refs):
            refs += _list_refs(experiment, f"{experiment.selector},{labels.REPLACED_UNIT}={unit}")
        if not refs:
            refs = _list_refs(experiment, f"{experiment.selector},{labels.REMOVED_UNIT}={unit}")
    return sorted(refs, key=lambda ref: (ref.created, ref.attempt))


def list_removed_containers(experiment: KubeExperiment) -> list[ContainerRef]:
    """Return the containers of the units that changes of the experiment have removed."""
    refs = _list_refs(experiment, experiment.scope.removed_selector)
    return sorted(refs, key=lambda ref: (ref.created, ref.attempt))


def removed_processes(experiment: KubeExperiment) -> list[str]:
    """Return the processes that a change has removed, and of which a Pod still exists.

    Raises `NotFound` if the experiment does not exist.
    """
    present = {process.name for process in experiments.experiment_status(experiment)}
    names = [ref.process for ref in list_containers(experiment)]
    return [name for name in dict.fromkeys(names) if name not in present]


def _list_refs(experiment: KubeExperiment, selector: str) -> list[ContainerRef]:
    try:
        pods = list_all(
            experiment.api, pod_path(experiment.scope), parse_pod, query={"labelSelector": selector}
        ).items
    except ApiError as exc:
        action = f"list the pods of {experiment.name!r}"
        raise missing_right(exc, action, "list pods", experiment.scope) from exc
    return [ref for pod in pods for ref in pod.refs]


def find_container(
    experiment: KubeExperiment, process: str, group: str | None = None
) -> ContainerRef | None:
    """Return a process's container in its newest Pod, or None if the process has no Pod.

    Raises `NotFound` if the experiment has no such process, or if the process is in another group.
    """
    # A process without a group has the same name as its unit, so one request for that unit is
    # usually enough.
    found = newest(list_containers(experiment, group or process), process)
    if found is None or (group is None and found.unit != process):
        found = newest(list_containers(experiment), process)
    if found is None or (group is not None and found.unit != group):
        process_state(experiment, process, group)
    return found


def newest(containers: Iterable[ContainerRef], process: str) -> ContainerRef | None:
    """Return a process's newest container, or None if there is none.

    A container whose Pod is being deleted is returned only if there is no other container.
    """
    candidates = [ref for ref in containers if ref.process == process]
    return max(
        candidates, key=lambda ref: (not ref.deleting, ref.attempt, ref.created), default=None
    )


def process_state(
    experiment: KubeExperiment, process: str, group: str | None = None
) -> tuple[str, str]:
    """Return a process's path, and a description of its state that includes the reason.

    Raises `NotFound` if the experiment has no such process, or if the process is in another group.
    """
    status = find_status(experiments.experiment_status(experiment), process, group)
    state = f"{status.state}, {status.reason}" if status.reason else str(status.state)
    return status.path, state


def running_container(
    experiment: KubeExperiment, process: str, group: str | None = None
) -> ContainerRef:
    """Return the container of a running process.

    Raises `NotFound` if the process does not exist or is not running.
    """
    found = find_container(experiment, process, group)
    if found is not None and found.running:
        return found
    path, state = process_state(experiment, process, group)
    raise NotFound(
        f"process {path!r} is not running ({state}), and Kubernetes runs commands only in running "
        f"containers; 'symphony logs {experiment.name} {process}' shows its output, and 'symphony "
        f"restart {experiment.name} {process}' starts it in a new container"
    )


def pod_path(scope: Scope, pod: str = "", subresource: str = "") -> str:
    """Return the API path of all Pods, of one Pod, or of a subresource of a Pod, such as
    ``log``.
    """
    parts = [collection_path("Pod", scope.namespace), pod, subresource]
    return "/".join(part for part in parts if part)
