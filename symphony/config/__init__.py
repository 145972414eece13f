"""Configuration: what holds for all experiments of a user or a project, from files, variables and the program.

Most runs have none, and then nothing but this package's `SymphonyConfig` and `symphony.config.finding` is imported.
"""

from __future__ import annotations

from symphony.config.config import SymphonyConfig

__all__ = ["SymphonyConfig"]
