"""The mutable classes that describe an experiment. Their methods check each change."""

from symphony.model.experiment import Experiment
from symphony.model.group import ProcessGroup
from symphony.model.process import Process

__all__ = ["Experiment", "Process", "ProcessGroup"]
