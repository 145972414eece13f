"""A stable import path for the tmux backend.

The core must not import backends, so each name is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {"Process": "symphony.model", "ProcessGroup": "symphony.model"}

__all__ = ["TmuxCluster", "Process", "ProcessGroup"]


def __getattr__(name: str) -> Any:
    if name == "TmuxCluster":
        from symphony.cluster import Cluster
        from symphony.cluster.plugins import open_backend

        # If a package is missing, the error message of `open_backend` contains the command that
        # installs the package.
        value: Any = open_backend("tmux", Cluster)
    elif name in _MODULES:
        value = getattr(importlib.import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module 'symphony.tmux' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
