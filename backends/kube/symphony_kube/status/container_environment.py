"""Read the variables of a container, also those that a ConfigMap of the experiment contains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope
from symphony_kube.api.resources import collection_path
from symphony_kube.render.shared_variables import environment_name

if TYPE_CHECKING:
    from symphony_kube.api.client import Api


def listed_variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that a container lists. Values from Secrets are empty."""
    return {item["name"]: str(item.get("value") or "") for item in container.get("env") or ()}


def read_shared_variables(
    api: Api, scope: Scope, pods: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the variables in the ConfigMap that the containers of ``pods`` refer to.

    Return none if they do not refer to it, or if the user may not read it.
    """
    name = environment_name(scope)
    sources = [
        source.get("configMapRef", {}).get("name")
        for pod in pods
        for container in pod["spec"]["containers"]
        for source in container.get("envFrom") or ()
    ]
    if name not in sources:
        return {}
    try:
        found = api.find(f"{collection_path('ConfigMap', scope.namespace)}/{name}")
    except ApiError as exc:
        if exc.status != 403:
            raise
        return {}
    return dict((found or {}).get("data") or {})
