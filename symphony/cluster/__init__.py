"""The abstract cluster, and how the cluster of a backend is found and created."""

from symphony.cluster.cluster import Cluster, ExecResult, Manifest, OnChange, Progress, Tunnel

__all__ = ["Cluster", "ExecResult", "Manifest", "OnChange", "Progress", "Tunnel"]
