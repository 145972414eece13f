"""What the nodes of a cluster offer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from symphony_kube.api.resources import items_of

if TYPE_CHECKING:
    from symphony_kube.api.client import Api


def gpus(api: Api, resource: str) -> dict[str, int]:
    """By node that takes Pods, how many GPUs a Pod can get there. Raises `BackendError`."""
    return offered(items_of(api.call("GET", "/api/v1/nodes")), resource)


def offered(nodes: list[dict[str, Any]], resource: str) -> dict[str, int]:
    """The same, from the nodes. A node that is cordoned takes none; extended resources are whole numbers."""
    taking: list[Mapping[str, Any]] = [
        node for node in nodes if not node.get("spec", {}).get("unschedulable")
    ]
    return {
        node["metadata"]["name"]: int(
            node.get("status", {}).get("allocatable", {}).get(resource, 0)
        )
        for node in taking
    }
