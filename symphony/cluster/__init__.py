"""The abstract cluster, and the functions that find and create the cluster of a backend."""

from symphony.cluster.cluster import Cluster, ExecResult, Manifest, OnChange, Progress, Tunnel

__all__ = ["Cluster", "ExecResult", "Manifest", "OnChange", "Progress", "Tunnel"]
