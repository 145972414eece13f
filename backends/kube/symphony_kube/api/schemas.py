"""The schemas of custom resources, which the API server publishes as OpenAPI documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony_kube.api.errors import ApiError

if TYPE_CHECKING:
    from symphony_kube.api.client import Api


def max_items(api: Api, root: str, kind: str, field: str) -> int | None:
    """Return how many items a list in the spec of a custom resource can have.

    ``root`` is the path of the API group and version of the kind, such as
    ``/apis/jobset.x-k8s.io/v1alpha2``. The result is None if there is no limit, or if the schema
    cannot be read. Sends a request, whose answer can have a megabyte.
    """
    try:
        document = api.find(f"/openapi/v3{root}")
    except ApiError:
        return None
    if document is None:
        return None
    for schema in document.get("components", {}).get("schemas", {}).values():
        names = schema.get("x-kubernetes-group-version-kind") or ()
        if any(name.get("kind") == kind for name in names):
            spec = schema.get("properties", {}).get("spec", {})
            limit = spec.get("properties", {}).get(field, {}).get("maxItems")
            return limit if isinstance(limit, int) else None
    return None
