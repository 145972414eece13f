"""Relative paths in an imported file."""

from __future__ import annotations

import os
from pathlib import Path


def rebased(path: str, base: Path, directory: Path) -> str:
    """Return a path that is relative to ``base`` as a path that is relative to ``directory``.

    A path that begins with a reference to a parameter is unchanged.
    """
    if path.startswith("$"):
        return path
    expanded = os.path.expanduser(path)  # noqa: PTH111
    if os.path.isabs(expanded) or base == directory:  # noqa: PTH117
        return expanded
    return os.path.relpath(base / expanded, directory)
