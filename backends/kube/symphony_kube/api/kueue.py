"""The Workloads of Kueue, in which it decides on the admission of Pods, Jobs and JobSets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony_kube.api.errors import ApiError

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

_GROUP_PATH = "/apis/kueue.x-k8s.io"
_DEFAULT_VERSION = "v1beta1"


def workloads_path(api: Api, namespace: str) -> str:
    """Return the API path of the Workloads in a namespace. Sends a request."""
    return f"{version_path(api)}/namespaces/{namespace}/workloads"


def version_path(api: Api) -> str:
    """Return the API path of the version of Kueue that the server prefers. Sends a request."""
    try:
        group = api.call("GET", _GROUP_PATH)
    except ApiError:
        group = {}
    version = (group.get("preferredVersion") or {}).get("version") or _DEFAULT_VERSION
    return f"{_GROUP_PATH}/{version}"
