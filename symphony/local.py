"""A stable import path for the local backend.

The core must not import backends, so each name is imported on first use.
"""

from __future__ import annotations

import importlib
from typing import Any

_MODULES = {
    "LocalCluster": "symphony_local.cluster",
    "Process": "symphony.model",
    "ProcessGroup": "symphony.model",
}

__all__ = ["LocalCluster", "Process", "ProcessGroup"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'symphony.local' has no attribute {name!r}")
    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
