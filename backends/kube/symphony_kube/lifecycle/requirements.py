"""Check that the cluster has what the objects of an experiment need."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from symphony.errors import LaunchFailed
from symphony_kube.api.kueue import version_path
from symphony_kube.api.labels import POD_GROUP, QUEUE
from symphony_kube.api.resources import KINDS, labels_of, names_of_resources
from symphony_kube.api.schemas import max_items
from symphony_kube.api.server_version import minor_version

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = Mapping[str, Any]

# The first versions of Kubernetes 1 with scheduling gates of Pods, and with suspended Jobs.
_FIRST_MINOR_VERSIONS = {"Pod": 27, "Job": 22, "JobSet": 22}
# No version of JobSet or Kueue has a lower limit for the number of Jobs in a JobSet, or for the
# number of kinds of Pods in a group.
_LOWEST_LIMIT = 8
# If Pods differ in these fields of the spec or of a container, Kueue admits them as different kinds
# of Pods.
_FIELDS_OF_KINDS = (
    "nodeSelector",
    "affinity",
    "tolerations",
    "runtimeClassName",
    "priorityClassName",
    "topologySpreadConstraints",
    "overhead",
    "resourceClaims",
)
_CONTAINER_FIELDS_OF_KINDS = ("resources", "ports")


def check_requirements(api: Api, bodies: Collection[Object]) -> None:
    """Raise `LaunchFailed` if the cluster cannot run Pods, Jobs or JobSets as described."""
    _check_job_sets(api, bodies)
    _check_queues(api, bodies)
    _check_sizes(api, bodies)
    _check_groups(api, bodies)


def _check_job_sets(api: Api, bodies: Collection[Object]) -> None:
    """Raise `LaunchFailed` if there are JobSets that the cluster does not know."""
    if all(body["kind"] != "JobSet" for body in bodies):
        return
    root, plural = KINDS["JobSet"]
    known = names_of_resources(api.find(root))
    if plural not in known:
        raise LaunchFailed(
            f"the cluster has no JobSet controller ({root.removeprefix('/apis/')}); install it, or "
            "remove jobset"
        )


def _check_queues(api: Api, bodies: Collection[Object]) -> None:
    """Raise `LaunchFailed` if an object would start without waiting for its queue.

    Older servers ignore the field with which an object waits.
    """
    waiting = [body for body in bodies if QUEUE in labels_of(body)]
    if not waiting:
        return
    minor = minor_version(api)
    for body in waiting:
        kind, first = body["kind"], _FIRST_MINOR_VERSIONS[body["kind"]]
        if minor < first:
            queue = labels_of(body)[QUEUE]
            raise LaunchFailed(
                f"{kind.lower()} {body['metadata']['name']!r} would not wait for queue {queue!r}, "
                f"because the cluster has Kubernetes 1.{minor}; use Kubernetes 1.{first} or newer, "
                "or remove queue"
            )


def _check_sizes(api: Api, bodies: Collection[Object]) -> None:
    """Raise `LaunchFailed` if a JobSet has more Jobs than it or Kueue accepts.

    Kueue would never admit the JobSet. Its limit depends on its version.
    """
    job_sets = [
        body
        for body in bodies
        if body["kind"] == "JobSet" and len(body["spec"]["replicatedJobs"]) > _LOWEST_LIMIT
    ]
    if not job_sets:
        return
    limit = max_items(api, KINDS["JobSet"][0], "JobSet", "replicatedJobs")
    _check_numbers_of_jobs(job_sets, limit, "its controller accepts", "set per_pod")
    queued = [body for body in job_sets if QUEUE in labels_of(body)]
    if queued:
        limit = _limit_of_kueue(api)
        cure = "set per_pod, or remove jobset, because Kueue admits any number of ranks without it"
        _check_numbers_of_jobs(queued, limit, "Kueue admits", cure)


def _limit_of_kueue(api: Api) -> int | None:
    """Return how many kinds of Pods Kueue admits together; see `max_items`."""
    return max_items(api, version_path(api), "Workload", "podSets")


def _check_groups(api: Api, bodies: Collection[Object]) -> None:
    """Raise `LaunchFailed` if the Pods of a group differ more than Kueue accepts.

    Kueue would never admit the group.
    """
    kinds: dict[str, set[str]] = {}
    for body in bodies:
        group = labels_of(body).get(POD_GROUP)
        if group and body["kind"] == "Pod":
            kinds.setdefault(group, set()).add(_kind_of_pod(body["spec"]))
    large = {group: len(found) for group, found in kinds.items() if len(found) > _LOWEST_LIMIT}
    if not large:
        return
    limit = _limit_of_kueue(api)
    for group, count in large.items():
        if limit is not None and count > limit:
            raise LaunchFailed(
                f"the ranks of {group!r} have {count} different kinds of Pods, and Kueue admits at "
                f"most {limit} together: give them the same resources, ports and rules for nodes, "
                "or remove queue"
            )


def _kind_of_pod(spec: Object) -> str:
    """Return a text that is the same for Pods that Kueue admits as one kind of Pods."""
    containers = [*(spec.get("initContainers") or ()), *spec["containers"]]
    fields = []
    for container in containers:
        fields.append([container.get(field) for field in _CONTAINER_FIELDS_OF_KINDS])
    return json.dumps([fields, [spec.get(field) for field in _FIELDS_OF_KINDS]], sort_keys=True)


def _check_numbers_of_jobs(
    job_sets: Collection[Object], limit: int | None, who_accepts: str, cure: str
) -> None:
    for body in job_sets:
        count = len(body["spec"]["replicatedJobs"])
        if limit is not None and count > limit:
            raise LaunchFailed(
                f"jobset {body['metadata']['name']!r} has {count} Pods, and {who_accepts} at most "
                f"{limit} in a JobSet: {cure}"
            )
