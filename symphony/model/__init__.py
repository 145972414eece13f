"""The description of an experiment: mutable, and checked on every change."""

from symphony.model.experiment import Experiment
from symphony.model.group import ProcessGroup
from symphony.model.process import Process

__all__ = ["Experiment", "Process", "ProcessGroup"]
