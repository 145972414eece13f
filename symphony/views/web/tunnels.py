"""The ports that the page forwards to exposed services."""

from __future__ import annotations

import threading
from contextlib import ExitStack

from symphony.cluster import Cluster, Tunnel


class Tunnels:
    """Tunnels that remain until the server stops. The methods can be called in any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._open = ExitStack()

    def visit(self, cluster: Cluster, experiment: str, service: str) -> Tunnel:
        """Return a tunnel to an exposed service; see `Cluster.visit`."""
        tunnel = cluster.visit(experiment, service)
        with self._lock:
            return self._open.enter_context(tunnel)

    def close(self) -> None:
        """Close all tunnels."""
        with self._lock:
            self._open.close()
