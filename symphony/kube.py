"""Kubernetes under the import path that programs rely on: the cluster, the dispatchers, and what they place.

A backend is found by name and never imported by the core: each name is loaded when it is first used. None of them
needs the ``kubernetes`` package before a cluster is asked.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "KubeCluster": "symphony_kube.cluster",
    "GKEDispatcher": "symphony_kube.node_pools.dispatcher",
    "NodePoolDispatcher": "symphony_kube.node_pools.dispatcher",
    "NodePool": "symphony_kube.node_pools.pools",
    "Reserve": "symphony_kube.node_pools.gke_reserve",
    "Process": "symphony.model",
    "ProcessGroup": "symphony.model",
}

__all__ = [
    "KubeCluster",
    "GKEDispatcher",
    "NodePoolDispatcher",
    "NodePool",
    "Reserve",
    "Process",
    "ProcessGroup",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'symphony.kube' has no attribute {name!r}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
