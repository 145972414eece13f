"""Configuration: the settings of a user or a project for all experiments.

They come from files, environment variables and the program. Most programs have none, and then only
`symphony.config.config` and `symphony.config.locations` are imported.
"""

from __future__ import annotations

from symphony.config.config import SymphonyConfig

__all__ = ["SymphonyConfig"]
