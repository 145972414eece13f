"""Ask the API server what the user may do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony_kube.api.errors import ApiError
from symphony_kube.api.resources import api_group, plural_name

if TYPE_CHECKING:
    from symphony_kube.api.kube_experiment import KubeExperiment

ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def may(experiment: KubeExperiment, verb: str, kind: str) -> bool:
    """Return whether the user has a right in the namespace. If this is unknown, return False."""
    attributes = {
        "namespace": experiment.namespace,
        "verb": verb,
        "group": api_group(kind),
        "resource": plural_name(kind),
    }
    body = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectAccessReview",
        "spec": {"resourceAttributes": attributes},
    }
    try:
        return bool(experiment.api.call("POST", ACCESS_REVIEWS, body=body)["status"].get("allowed"))
    except ApiError:
        return False
