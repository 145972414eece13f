"""The fields that the options of a cluster set in all objects of a kind. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from symphony.errors import SpecError
from symphony_kube.render.given_fields.merge import merge, to_plain_data
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.text import Object

# Pod Security Admission refuses Pods without these fields in namespaces with the level restricted.
_RESTRICTED_POD = {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}}
_RESTRICTED_CONTAINER = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}


def with_cluster_override(body: Object, options: RenderOptions) -> Object:
    """Return an object with the fields that the options set for its kind.

    Raises `SpecError` if an option changes the kind of the object, its name or its labels.
    """
    option, fields = _option_for(body["kind"], options)
    if not fields:
        return body
    result = merge(body, to_plain_data(fields, option))
    metadata = result.get("metadata")
    for key in ("apiVersion", "kind"):
        if result.get(key) != body[key]:
            raise SpecError(f"{option} changes {key} of the object; remove it")
    for key in ("name", "namespace"):
        if not isinstance(metadata, dict) or metadata.get(key) != body["metadata"].get(key):
            raise SpecError(
                f"{option} changes the {key} of all objects, by which symphony finds them; remove "
                "it"
            )
    labels = metadata.get("labels") if isinstance(metadata, dict) else None
    for key, value in body["metadata"]["labels"].items():
        if not isinstance(labels, dict) or labels.get(key) != value:
            raise SpecError(f"{option} changes the label {key!r} of symphony; remove it")
    return result


def _option_for(kind: str, options: RenderOptions) -> tuple[str, Mapping[str, Any]]:
    fields = {
        "Job": ("job_yml", options.job_yml),
        "Service": ("service_yml", options.service_yml),
        "Namespace": ("namespace_yml", options.namespace_yml),
    }
    return fields[kind]


def with_security(spec: Object, security: str | None) -> Object:
    """Return the spec of a Pod whose containers pass the Pod security level ``security``.

    Fields that are set are not changed.
    """
    if security is None:
        return spec
    result = {**spec, "securityContext": merge(_RESTRICTED_POD, spec.get("securityContext") or {})}
    for key in ("initContainers", "containers"):
        if key in spec:
            result[key] = [_with_container_security(container) for container in spec[key]]
    return result


def _with_container_security(container: Object) -> Object:
    present = container.get("securityContext") or {}
    return {**container, "securityContext": merge(_RESTRICTED_CONTAINER, present)}
