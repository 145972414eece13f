from symphony.model import Process as Process
from symphony.model import ProcessGroup as ProcessGroup
from symphony_kube.cluster import KubeCluster as KubeCluster
from symphony_kube.node_pools.dispatcher import GKEDispatcher as GKEDispatcher
from symphony_kube.node_pools.dispatcher import NodePoolDispatcher as NodePoolDispatcher
from symphony_kube.node_pools.gke_reserve import Reserve as Reserve
from symphony_kube.node_pools.pools import NodePool as NodePool

__all__ = [
    "KubeCluster",
    "GKEDispatcher",
    "NodePoolDispatcher",
    "NodePool",
    "Reserve",
    "Process",
    "ProcessGroup",
]
