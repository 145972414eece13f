"""A stable import path for the core of symphony. Each name is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.config import SymphonyConfig
    from symphony.plan.addresses import AddressBook

_MODULES = {
    "AddressBook": "symphony.plan.addresses",
    "Cluster": "symphony.cluster",
    "SymphonyConfig": "symphony.config",
}

__all__ = ["AddressBook", "Cluster", "SymphonyConfig"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'symphony.engine' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(_MODULES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
