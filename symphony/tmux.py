"""tmux under the import path that programs rely on: the cluster, and what is launched on it.

A backend is found by name and never imported by the core: each name is loaded when it is first used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {"Process": "symphony.model", "ProcessGroup": "symphony.model"}

__all__ = ["TmuxCluster", "Process", "ProcessGroup"]


def __getattr__(name: str) -> Any:
    if name == "TmuxCluster":
        from symphony.cluster.plugins import open_backend

        value: Any = open_backend("tmux")  # which says what to install where something is missing
    elif name in _HOMES:
        value = getattr(importlib.import_module(_HOMES[name]), name)
    else:
        raise AttributeError(f"module 'symphony.tmux' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
