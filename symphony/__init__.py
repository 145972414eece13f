"""Describe an experiment once, and launch it locally, in tmux, on Kubernetes or on Slurm.

Each public name is imported when it is first used, so ``import symphony`` itself imports only the
standard library. The package also provides the names of its backends and tools, such as
`KubeCluster`, which are defined in its public modules, such as `symphony.kube`.
"""

from __future__ import annotations

from symphony.support.lazy_imports import import_when_used

# Type checkers know this name. The module `typing` is not imported, because the programs of
# symphony have not corrected their import path yet; see `symphony.support.import_path`.
TYPE_CHECKING = False
if TYPE_CHECKING:
    from symphony.addons import DockerBuilder as DockerBuilder
    from symphony.addons import clean_images as clean_images
    from symphony.cluster import Cluster, ExecResult, Manifest
    from symphony.commandline import SymphonyParser as SymphonyParser
    from symphony.config import SymphonyConfig
    from symphony.errors import (
        AlreadyExists,
        BackendError,
        LaunchFailed,
        LaunchIncomplete,
        NotFound,
        PluginError,
        SpecError,
        SymphonyError,
        Unreachable,
        Unsupported,
    )
    from symphony.events import EventKind, ExperimentEvent
    from symphony.kube import GKEDispatcher as GKEDispatcher
    from symphony.kube import KubeCluster as KubeCluster
    from symphony.launched_program import Address, address
    from symphony.local import LocalCluster as LocalCluster
    from symphony.model import Experiment, Process, ProcessGroup
    from symphony.plan.plan import Plan
    from symphony.plan.resolution.addresses import AddressBook, Endpoint
    from symphony.status import ExperimentStatus, LogLine, ProcessStatus, State
    from symphony.tmux import TmuxCluster as TmuxCluster
    from symphony.usage import ExperimentUsage, ProcessUsage

__version__ = "0.1.0"

_NAMES = {
    "addons": ("DockerBuilder", "clean_images"),
    "cluster": ("Cluster", "ExecResult", "Manifest"),
    "commandline": ("SymphonyParser",),
    "config": ("SymphonyConfig",),
    "errors": (
        "AlreadyExists",
        "BackendError",
        "LaunchFailed",
        "LaunchIncomplete",
        "NotFound",
        "PluginError",
        "SpecError",
        "SymphonyError",
        "Unreachable",
        "Unsupported",
    ),
    "events": ("EventKind", "ExperimentEvent"),
    "kube": ("GKEDispatcher", "KubeCluster"),
    "launched_program": ("Address", "address"),
    "local": ("LocalCluster",),
    "plan.resolution.addresses": ("AddressBook", "Endpoint"),
    "plan.plan": ("Plan",),
    "model": ("Experiment", "Process", "ProcessGroup"),
    "status": ("ExperimentStatus", "LogLine", "ProcessStatus", "State"),
    "tmux": ("TmuxCluster",),
    "usage": ("ExperimentUsage", "ProcessUsage"),
}
_MODULES = {name: f"symphony.{module}" for module, names in _NAMES.items() for name in names}

# The backends and tools are not in this list. Otherwise, ``from symphony import *`` would import
# all backends, and would fail if the packages that one of them needs are not installed.
__all__ = [
    "Address",
    "AddressBook",
    "AlreadyExists",
    "BackendError",
    "Cluster",
    "Endpoint",
    "EventKind",
    "ExecResult",
    "Experiment",
    "ExperimentEvent",
    "ExperimentStatus",
    "ExperimentUsage",
    "LaunchFailed",
    "LaunchIncomplete",
    "LogLine",
    "Manifest",
    "NotFound",
    "Plan",
    "PluginError",
    "Process",
    "ProcessGroup",
    "ProcessStatus",
    "ProcessUsage",
    "SpecError",
    "State",
    "SymphonyConfig",
    "SymphonyError",
    "Unreachable",
    "Unsupported",
    "address",
]

del TYPE_CHECKING
__getattr__, __dir__ = import_when_used(__name__, _MODULES)
