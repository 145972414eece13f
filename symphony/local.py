"""A stable import path for the local backend.

The core must not import backends, so each name is imported on first use.
"""

from __future__ import annotations

from symphony.support.lazy_imports import import_when_used

_MODULES = {
    "LocalCluster": "symphony_local.cluster",
    "Process": "symphony.model",
    "ProcessGroup": "symphony.model",
}

__all__ = ["LocalCluster", "Process", "ProcessGroup"]

__getattr__, __dir__ = import_when_used(__name__, _MODULES)
