from symphony.spec import Process as Process
from symphony.spec import ProcessGroup as ProcessGroup
from symphony_kube.cluster import KubeCluster as KubeCluster
from symphony_kube.dispatch.dispatcher import GKEDispatcher as GKEDispatcher
from symphony_kube.dispatch.dispatcher import NodePoolDispatcher as NodePoolDispatcher
from symphony_kube.dispatch.pools import NodePool as NodePool
from symphony_kube.dispatch.reserve import Reserve as Reserve

__all__ = ["KubeCluster", "GKEDispatcher", "NodePoolDispatcher", "NodePool", "Reserve", "Process", "ProcessGroup"]
