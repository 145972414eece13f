"""List the objects of an experiment.

This module imports few others, so that a command can send its request before it imports the modules
that evaluate the answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.support.names import is_name
from symphony_kube.api.errors import ApiError
from symphony_kube.api.listing import list_all, reduced
from symphony_kube.api.resources import collection_path
from symphony_kube.status.permission_errors import cannot_list_pods

if TYPE_CHECKING:
    from symphony_kube.api.client import Object
    from symphony_kube.api.kube_experiment import KubeExperiment


def list_pods(experiment: KubeExperiment) -> list[Object]:
    """Return an experiment's Pods. Raises `ApiError` if the user may not list them."""
    try:
        return list_objects(experiment, "Pod")
    except ApiError as exc:
        if exc.status != 403:
            raise
        raise cannot_list_pods(exc, experiment.scope) from exc


def list_objects(experiment: KubeExperiment, kind: str) -> list[Object]:
    """Return the objects of one kind that belong to an experiment."""
    if not is_name(experiment.name):  # The API server rejects a selector with an invalid name.
        return []
    path = collection_path(kind, experiment.namespace)
    query = {"labelSelector": experiment.scope.present_selector}
    return list_all(experiment.api, path, reduced, query=query).items
