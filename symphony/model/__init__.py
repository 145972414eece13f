"""The mutable classes that describe an experiment. Their methods check each change.

The classes are imported when they are first used, because commands that describe no experiment use
only the validators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.support.lazy_imports import import_when_used

if TYPE_CHECKING:
    from symphony.model.experiment.experiment import Experiment
    from symphony.model.experiment.group import ProcessGroup
    from symphony.model.experiment.process import Process

_MODULES = {
    "Experiment": "symphony.model.experiment.experiment",
    "Process": "symphony.model.experiment.process",
    "ProcessGroup": "symphony.model.experiment.group",
}

__all__ = ["Experiment", "Process", "ProcessGroup"]

__getattr__, __dir__ = import_when_used(__name__, _MODULES)
