"""`Cluster`, which users call, `Backend`, which each backend defines, and finding backends."""

from symphony.cluster.cluster import (
    Cluster,
    ExecResult,
    Manifest,
    OnChange,
    Progress,
    Tunnel,
    WatchedStatuses,
)

__all__ = [
    "Cluster",
    "ExecResult",
    "Manifest",
    "OnChange",
    "Progress",
    "Tunnel",
    "WatchedStatuses",
]
