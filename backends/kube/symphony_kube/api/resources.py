"""API objects: the path of each kind, symphony's labels, lists of objects, and their times.

All functions are pure.
"""

from __future__ import annotations

import calendar
import functools
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from symphony_kube.api.labels import EXPERIMENT, MANAGED_BY, RUN, RUN_NAME, SYMPHONY, Scope

Object = Mapping[str, Any]

NAMESPACES = "/api/v1/namespaces"
# For each kind, the root path of its API group and its plural name.
KINDS = {
    "Pod": ("/api/v1", "pods"),
    "Job": ("/apis/batch/v1", "jobs"),
    "JobSet": ("/apis/jobset.x-k8s.io/v1alpha2", "jobsets"),
    "Service": ("/api/v1", "services"),
    "Secret": ("/api/v1", "secrets"),
    "ConfigMap": ("/api/v1", "configmaps"),
}


# The kinds of further objects that a supervisor needs. The metrics server makes the PodMetrics.
SUPERVISOR_KINDS = {
    "ServiceAccount": ("/api/v1", "serviceaccounts"),
    "Role": ("/apis/rbac.authorization.k8s.io/v1", "roles"),
    "RoleBinding": ("/apis/rbac.authorization.k8s.io/v1", "rolebindings"),
    "PodMetrics": ("/apis/metrics.k8s.io/v1beta1", "pods"),
}
_ALL_KINDS = {**KINDS, **SUPERVISOR_KINDS}


def collection_path(kind: str, namespace: str | None) -> str:
    """Return the API path for all objects of a kind in a namespace, or in all namespaces."""
    if kind == "Namespace":
        return NAMESPACES
    root, plural = _ALL_KINDS[kind]
    return f"{root}/{plural}" if namespace is None else f"{root}/namespaces/{namespace}/{plural}"


def plural_name(kind: str) -> str:
    """Return the plural name of a kind, such as ``pods``, as used in RBAC rules."""
    if kind == "Namespace":
        return "namespaces"
    return _ALL_KINDS[kind][1]


def api_group(kind: str) -> str:
    """Return the API group of a kind, such as ``batch``, or ``""`` for the core group."""
    parts = _ALL_KINDS[kind][0].split("/")
    return parts[2] if parts[1] == "apis" else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An object to create. ``data`` is the object encoded as JSON."""

    kind: str
    name: str
    namespace: str
    data: bytes

    @property
    def collection(self) -> str:
        """The path to which the object is posted to create it."""
        return collection_path(self.kind, self.namespace)

    @property
    def path(self) -> str:
        """The path of the object itself."""
        return f"{self.collection}/{self.name}"

    def __str__(self) -> str:
        return describe(self.kind, self.name)


def describe(kind: str, name: str) -> str:
    """Return the kind and name of an object as they appear in messages.

    >>> describe("ConfigMap", "db")
    "config map 'db'"
    """
    word = "config map" if kind == "ConfigMap" else kind.lower()
    return f"{word} {name!r}"


def to_resource(body: Object, namespace: str) -> Resource:
    """Return the `Resource` for an object in a namespace."""
    return Resource(
        kind=body["kind"],
        name=body["metadata"]["name"],
        namespace=namespace,
        data=json.dumps(body).encode(),
    )


def with_run_label(body: Object, run_id: str) -> Object:
    """Return a copy of an object, and of the templates in it, with a label for the run."""

    def labelled(metadata: Object) -> Object:
        return {**metadata, "labels": {**(metadata.get("labels") or {}), RUN: run_id}}

    return with_metadata(body, labelled)


def with_run_name(body: Object, run_name: str) -> Object:
    """Return a copy of a Pod, a Job or a JobSet with an annotation that contains the run's
    identifier. The annotation is also added to the templates in it.
    """

    def annotated(metadata: Object) -> Object:
        annotations = {**(metadata.get("annotations") or {}), RUN_NAME: run_name}
        return {**metadata, "annotations": annotations}

    return with_metadata(body, annotated)


def run_name_of(body: Object) -> str:
    """Return the identifier of the run in the annotation of an object, or ``""``."""
    return str((body["metadata"].get("annotations") or {}).get(RUN_NAME, ""))


def with_metadata(body: Object, change: Callable[[Object], Object]) -> dict[str, Any]:
    """Return a copy of an object with changed metadata.

    The metadata of the template in a Job, and of the templates in a JobSet, are changed too.
    """
    result = {**body, "metadata": change(body.get("metadata") or {})}
    spec = body.get("spec") or {}
    if "template" in spec:
        result["spec"] = {**spec, "template": with_metadata(spec["template"], change)}
    elif "replicatedJobs" in spec:
        jobs = [
            {**job, "template": with_metadata(job["template"], change)}
            for job in spec["replicatedJobs"]
        ]
        result["spec"] = {**spec, "replicatedJobs": jobs}
    return result


def pods_of(body: Object) -> list[Object]:
    """Return a Pod, or the templates of the Pods of a Job or JobSet."""
    if body["kind"] == "Pod":
        return [body]
    if body["kind"] == "Job":
        return [body["spec"]["template"]]
    jobs = [item["template"] for item in body["spec"]["replicatedJobs"]]
    return [job["spec"]["template"] for job in jobs]


def items_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the objects in a list response. In an empty list, ``items`` can be null."""
    return answer.get("items") or []


def names_of_resources(group: Mapping[str, Any] | None) -> list[str]:
    """Return the plural names of the kinds in an API group, or an empty list if there is none."""
    return [] if group is None else [resource["name"] for resource in group["resources"]]


def labels_of(body: Object) -> Mapping[str, str]:
    """Return the labels of an object."""
    return body["metadata"].get("labels") or {}


def is_managed(body: Object, experiment: str) -> bool:
    """Return whether ``body`` is an object that symphony created for the given experiment."""
    return experiment_of(body) == experiment


def run_of(body: Object) -> str:
    """Return the label of the run to which an object belongs, or ``""``."""
    return labels_of(body).get(RUN, "")


def is_in_scope(body: Object, scope: Scope) -> bool:
    """Return whether ``body`` is an object of an experiment, or of the launch that ``scope`` is
    limited to.
    """
    is_of_run = not scope.run or run_of(body) == scope.run
    return is_of_run and is_managed(body, scope.experiment)


def experiment_of(body: Object) -> str | None:
    """Return the name of an object's experiment, or None if symphony did not create the object."""
    labels = labels_of(body)
    if labels.get(MANAGED_BY) != SYMPHONY:
        return None
    return labels.get(EXPERIMENT)


@functools.lru_cache(maxsize=4096)
def parse_time(time: str | None) -> float | None:
    """Convert an API timestamp to seconds since the epoch.

    Return None if the timestamp is missing or invalid, or if it is the epoch itself, which the API
    uses for an event that has not happened.
    """
    if not time:
        return None
    try:
        parts = (
            int(time[0:4]),
            int(time[5:7]),
            int(time[8:10]),
            int(time[11:13]),
            int(time[14:16]),
            int(time[17:19]),
        )
    except ValueError:
        return None
    return float(calendar.timegm((*parts, 0, 0, 0))) or None
