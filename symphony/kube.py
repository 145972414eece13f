"""A stable import path for the Kubernetes backend's public names.

The core does not import backends, so each name is imported on first use. The ``kubernetes`` package
is required only for requests to a cluster.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
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
    if name not in _MODULES:
        raise AttributeError(f"module 'symphony.kube' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
