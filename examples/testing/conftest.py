"""The fixture of symphony that runs an experiment during a test."""

from symphony.testing import running

__all__ = ["running"]
