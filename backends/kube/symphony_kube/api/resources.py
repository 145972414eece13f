"""Objects as the API takes them: where each kind lives, and the marks of a launch on them. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from symphony_kube.api import labels as names

Object = Mapping[str, Any]

NAMESPACES = "/api/v1/namespaces"
# kind -> (API group's root, plural)
KINDS = {
    "Pod": ("/api/v1", "pods"),
    "Job": ("/apis/batch/v1", "jobs"),
    "Service": ("/api/v1", "services"),
    "Secret": ("/api/v1", "secrets"),
    "ConfigMap": ("/api/v1", "configmaps"),
}


def collection_path(kind: str, namespace: str) -> str:
    """The path of all objects of a kind in a namespace."""
    if kind == "Namespace":
        return NAMESPACES
    root, plural = KINDS[kind]
    return f"{root}/namespaces/{namespace}/{plural}"


def plural_name(kind: str) -> str:
    """What RBAC calls a kind."""
    return "namespaces" if kind == "Namespace" else KINDS[kind][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """An object to be created: ``data`` is its JSON."""

    kind: str
    name: str
    namespace: str
    data: bytes

    @property
    def collection(self) -> str:
        """Where it is created."""
        return collection_path(self.kind, self.namespace)

    @property
    def path(self) -> str:
        """Where it is once it was."""
        return f"{self.collection}/{self.name}"

    def __str__(self) -> str:
        return describe(self.kind, self.name)


def describe(kind: str, name: str) -> str:
    """An object in words.

    >>> describe("ConfigMap", "db")
    "config map 'db'"
    """
    word = "config map" if kind == "ConfigMap" else kind.lower()
    return f"{word} {name!r}"


def to_resource(body: Object, namespace: str) -> Resource:
    """An object as it is, in a namespace."""
    return Resource(
        kind=body["kind"],
        name=body["metadata"]["name"],
        namespace=namespace,
        data=json.dumps(body).encode(),
    )


def with_run_label(body: Object, run_id: str) -> Object:
    """An object with the mark of a launch, on the Pods of a Job as well; the one given stays as it is."""
    found = {**body, "metadata": _marked(body.get("metadata", {}), run_id)}
    if body["kind"] == "Job":
        spec = body["spec"]
        template = spec["template"]
        found["spec"] = {
            **spec,
            "template": {**template, "metadata": _marked(template.get("metadata", {}), run_id)},
        }
    return found


def _marked(meta: Object, run_id: str) -> Object:
    return {**meta, "labels": {**meta.get("labels", {}), names.RUN: run_id}}


def items_of(answer: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The objects of a list; one without any may have null there."""
    return answer.get("items") or []


def labels(body: Object) -> Mapping[str, str]:
    """The labels of an object."""
    return body["metadata"].get("labels") or {}


def is_managed(body: Object, experiment: str) -> bool:
    """Whether symphony made an object, for this experiment."""
    return experiment_of(body) == experiment


def experiment_of(body: Object) -> str | None:
    """The experiment for which symphony made an object; None where symphony did not."""
    found = labels(body)
    return found.get(names.EXPERIMENT) if found.get(names.MANAGED_BY) == names.SYMPHONY else None
