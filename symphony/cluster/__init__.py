"""The abstract cluster, and the functions that find a backend and create its cluster."""

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
