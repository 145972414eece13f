from symphony.model import Process as Process
from symphony.model import ProcessGroup as ProcessGroup
from symphony_local.cluster import LocalCluster as LocalCluster

__all__ = ["LocalCluster", "Process", "ProcessGroup"]
