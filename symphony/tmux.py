"""A stable import path for the tmux backend.

The core must not import backends, so each name is imported on first use.
"""

from __future__ import annotations

from typing import Any

from symphony.support.lazy_imports import import_when_used


def _open_backend() -> Any:
    from symphony.cluster import Cluster
    from symphony.cluster.plugins import open_backend

    # If a package is missing, the error message of `open_backend` contains the command that
    # installs the package.
    return open_backend("tmux", Cluster)


_MODULES = {
    "TmuxCluster": _open_backend,
    "Process": "symphony.model",
    "ProcessGroup": "symphony.model",
}

__all__ = ["TmuxCluster", "Process", "ProcessGroup"]

__getattr__, __dir__ = import_when_used(__name__, _MODULES)
