"""The description of an experiment: mutable, backend-neutral, checked as it is written."""

from symphony.spec.experiment import Experiment
from symphony.spec.group import ProcessGroup
from symphony.spec.process import Process

__all__ = ["Experiment", "Process", "ProcessGroup"]
