"""The description of a backend that a plug-in provides.

A plug-in is a module that a distribution registers in the entry-point group ``symphony.backends``.
The distribution declares one entry for the backend's name, and one for each of its aliases::

    [project.entry-points."symphony.backends"]
    slurm = "symphony_slurm.plugin"

The module contains the description under the name ``BACKEND``. The module is imported whenever
backends are listed, so it must not import libraries other than symphony::

    from symphony.hookspecs import BackendInfo

    BACKEND = BackendInfo(
        name="slurm", summary="Jobs on Slurm", load="symphony_slurm.cluster:SlurmCluster"
    )

A plug-in that computes the description implements a hook of pluggy instead. This takes longer,
because symphony then imports pluggy::

    from symphony.hookspecs import BackendInfo, hookimpl

    @hookimpl
    def symphony_backend() -> BackendInfo:
        return BackendInfo(...)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.backend_info import CAPABILITIES, SNAPSHOT, STATE_DIR, BackendInfo, Option
from symphony.support.lazy_imports import import_when_used

if TYPE_CHECKING:
    from symphony.hook_markers import hookimpl as hookimpl

__all__ = ["CAPABILITIES", "SNAPSHOT", "STATE_DIR", "BackendInfo", "Option", "hookimpl"]

__getattr__, __dir__ = import_when_used(__name__, {"hookimpl": "symphony.hook_markers"})
