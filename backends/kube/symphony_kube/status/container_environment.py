"""Read the variables of a container, also those that a ConfigMap of the experiment contains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import collection_path
from symphony_kube.render.shared_variables import environment_name

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment


def listed_variables(container: Mapping[str, Any]) -> dict[str, str]:
    """Return the variables that a container lists. Values from Secrets are empty."""
    return {item["name"]: str(item.get("value") or "") for item in container.get("env") or ()}


def read_shared_variables(
    experiment: KubeExperiment, pods: Iterable[Mapping[str, Any]]
) -> dict[str, str]:
    """Return the variables in the ConfigMap that the containers of ``pods`` refer to.

    Return none if they do not refer to it, or if the user may not read it.
    """
    name = environment_name(experiment.scope)
    sources = [
        source.get("configMapRef", {}).get("name")
        for pod in pods
        for container in pod["spec"]["containers"]
        for source in container.get("envFrom") or ()
    ]
    if name not in sources:
        return {}
    try:
        found = experiment.api.find(f"{collection_path('ConfigMap', experiment.namespace)}/{name}")
    except ApiError as exc:
        if exc.status != 403:
            raise
        return {}
    return dict((found or {}).get("data") or {})
