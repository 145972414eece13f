"""The variables that all processes of an experiment have, such as the addresses of services. Pure.

Each container lists them, unless they are large: the sizes of all containers together grow with the
product of the numbers of services and processes. A ConfigMap then contains them once.
"""

from __future__ import annotations

from collections.abc import Mapping

from symphony.errors import SpecError
from symphony_kube.api.labels import ENVIRONMENT, Scope
from symphony_kube.render.file_objects.files import MAX_OBJECT_BYTES
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.text import Object

# About a hundred services. Up to this size, a container with all of its variables can be read.
MAX_LISTED_BYTES = 16 * 1024


def is_shared(variables: Mapping[str, str], options: RenderOptions) -> bool:
    """Return whether a ConfigMap contains the variables that all processes have.

    With ``jobs_only``, users may not be allowed to create ConfigMaps.
    """
    return not options.jobs_only and _size(variables) > MAX_LISTED_BYTES


def environment_object(variables: Mapping[str, str], scope: Scope) -> Object:
    """Return the ConfigMap that contains the variables. Raises `SpecError` if it is too large."""
    size = _size(variables)
    if size > MAX_OBJECT_BYTES:
        raise SpecError(
            f"the addresses of all services take {size / MAX_OBJECT_BYTES:.2f} MiB, and the limit "
            "of Kubernetes is 1 MiB; declare fewer services, or shorten their names"
        )
    metadata = {
        "name": environment_name(scope),
        "namespace": scope.namespace,
        "labels": scope.labels,
    }
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {**variables}}


def environment_name(scope: Scope) -> str:
    """Return the name of the ConfigMap."""
    return scope.object_name(ENVIRONMENT, "ConfigMap")


def with_shared_environment(container: Object, scope: Scope) -> Object:
    """Return a container that has the variables in the ConfigMap.

    Of two sources with the same variable, Kubernetes uses the last one.
    """
    source = {"configMapRef": {"name": environment_name(scope)}}
    return {**container, "envFrom": [*(container.get("envFrom") or ()), source]}


def _size(variables: Mapping[str, str]) -> int:
    return sum(len(name) + len(value.encode()) for name, value in variables.items())
