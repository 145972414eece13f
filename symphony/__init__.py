"""Describe a multi-process experiment once, and launch it locally, in tmux or on Kubernetes.

Each public name is imported when it is first used, so ``import symphony`` itself imports only the
standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from symphony.application import Address, address
    from symphony.cluster import Cluster, ExecResult, Manifest
    from symphony.config import SymphonyConfig
    from symphony.errors import (
        AlreadyExists,
        BackendError,
        LaunchFailed,
        NotFound,
        PluginError,
        SpecError,
        SymphonyError,
        Unreachable,
        Unsupported,
    )
    from symphony.model import Experiment, Process, ProcessGroup
    from symphony.plan.addresses import AddressBook, Endpoint
    from symphony.plan.resolve import Plan
    from symphony.status import ExperimentStatus, LogLine, ProcessStatus, State

__version__ = "0.1.0"

_NAMES = {
    "application": ("Address", "address"),
    "cluster": ("Cluster", "ExecResult", "Manifest"),
    "config": ("SymphonyConfig",),
    "errors": (
        "AlreadyExists",
        "BackendError",
        "LaunchFailed",
        "NotFound",
        "PluginError",
        "SpecError",
        "SymphonyError",
        "Unreachable",
        "Unsupported",
    ),
    "plan.addresses": ("AddressBook", "Endpoint"),
    "plan.resolve": ("Plan",),
    "model": ("Experiment", "Process", "ProcessGroup"),
    "status": ("ExperimentStatus", "LogLine", "ProcessStatus", "State"),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}

__all__ = [
    "Address",
    "AddressBook",
    "AlreadyExists",
    "BackendError",
    "Cluster",
    "Endpoint",
    "ExecResult",
    "Experiment",
    "ExperimentStatus",
    "LaunchFailed",
    "LogLine",
    "Manifest",
    "NotFound",
    "Plan",
    "PluginError",
    "Process",
    "ProcessGroup",
    "ProcessStatus",
    "SpecError",
    "State",
    "SymphonyConfig",
    "SymphonyError",
    "Unreachable",
    "Unsupported",
    "address",
]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'symphony' has no attribute {name!r}")
    import importlib

    value = getattr(importlib.import_module(f"symphony.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
