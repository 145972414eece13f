from symphony.model import Process as Process
from symphony.model import ProcessGroup as ProcessGroup
from symphony_tmux.cluster import TmuxCluster as TmuxCluster

__all__ = ["TmuxCluster", "Process", "ProcessGroup"]
