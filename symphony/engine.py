"""A stable import path for the core of symphony. Each name is imported on first use."""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.support.lazy_imports import import_when_used

if TYPE_CHECKING:
    from symphony.cluster import Cluster
    from symphony.config import SymphonyConfig
    from symphony.plan.resolution.addresses import AddressBook

_MODULES = {
    "AddressBook": "symphony.plan.resolution.addresses",
    "Cluster": "symphony.cluster",
    "SymphonyConfig": "symphony.config",
}

__all__ = ["AddressBook", "Cluster", "SymphonyConfig"]

__getattr__, __dir__ = import_when_used(__name__, _MODULES)
