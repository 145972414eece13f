"""The configuration: settings of a user or a project that apply to all experiments.

The settings come from files, environment variables and the program. Most programs have no settings
and import only `symphony.config.config` and `symphony.config.locations`.
"""

from __future__ import annotations

from symphony.config.config import SymphonyConfig

__all__ = ["SymphonyConfig"]
