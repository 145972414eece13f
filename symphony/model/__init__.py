"""The mutable classes that describe an experiment. Their methods check each change.

The classes are imported when they are first used, because commands that describe no experiment use
only the validators.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from symphony.lazy_names import import_when_used

if TYPE_CHECKING:
    from symphony.model.experiment import Experiment
    from symphony.model.group import ProcessGroup
    from symphony.model.process import Process

_MODULES = {
    "Experiment": "symphony.model.experiment",
    "Process": "symphony.model.process",
    "ProcessGroup": "symphony.model.group",
}

__all__ = ["Experiment", "Process", "ProcessGroup"]

__getattr__, __dir__ = import_when_used(__name__, _MODULES)
