"""The base directories of the tools, according to the XDG base directory specification."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_home(environ: Mapping[str, str], home: Path) -> Path:
    """Return the directory for the caches of all programs."""
    return _base(environ, "XDG_CACHE_HOME", home / ".cache")


def state_home(environ: Mapping[str, str], home: Path) -> Path:
    """Return the directory for the states of all programs."""
    return _base(environ, "XDG_STATE_HOME", home / ".local/state")


def _base(environ: Mapping[str, str], variable: str, default: Path) -> Path:
    """Return the path in the environment variable `variable`, or `default` if the variable contains
    no absolute path.

    The specification requires relative paths to be ignored.
    """
    value = Path(environ.get(variable, ""))
    return value if value.is_absolute() else default
