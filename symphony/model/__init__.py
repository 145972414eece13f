"""The description of an experiment: mutable, backend-neutral, checked as it is written."""

from symphony.model.experiment import Experiment
from symphony.model.group import ProcessGroup
from symphony.model.process import Process

__all__ = ["Experiment", "Process", "ProcessGroup"]
