"""The configuration: a user's or a project's settings for all experiments.

The settings come from the command line, the program, environment variables and files. If there are
no settings, which is the usual case, only `symphony.config.config` and `symphony.config.locations`
are imported.
"""

from __future__ import annotations

from symphony.config.config import SymphonyConfig
from symphony.config.configuration import Configuration

__all__ = ["Configuration", "SymphonyConfig"]
