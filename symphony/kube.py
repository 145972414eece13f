"""A stable import path for the Kubernetes backend's public names.

The core does not import backends, so each name is imported on first use. The packages of the extra
``kube`` are required only for requests to a cluster.
"""

from __future__ import annotations

from symphony.support.lazy_imports import import_when_used

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

__getattr__, __dir__ = import_when_used(__name__, _MODULES)
