"""The abstract cluster, and how a backend is found and opened."""

from symphony.cluster.cluster import Cluster, ExecResult, Manifest, OnChange, Progress, Tunnel

__all__ = ["Cluster", "ExecResult", "Manifest", "OnChange", "Progress", "Tunnel"]
