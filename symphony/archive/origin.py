"""The origin of an experiment: the directory of its file, or the Git worktree that contains it.

Two experiments with the same name and different origins are different experiments, for example
those of two worktrees of a repository. A command must not change one of them to the description of
the other.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def find_origin(directory: Path) -> Path:
    """Return the root of the Git worktree that contains ``directory``, or ``directory`` itself.

    The result is an absolute path without symbolic links.
    """
    resolved = Path(os.path.realpath(directory))
    for parent in (resolved, *resolved.parents):
        # In a worktree that `git worktree` has added, .git is a file.
        if (parent / ".git").exists():
            return parent
    return resolved


def other_origin(record: Mapping[str, Any], directory: Path) -> str | None:
    """Return the origin in the record of an experiment if ``directory`` has another origin.

    Return None if they are the same, or if they cannot be compared: the record contains no origin,
    or its origin does not exist on this machine. The directory can have been moved, or the
    experiment was launched on another machine.
    """
    recorded = record.get("origin")
    if not isinstance(recorded, str) or record.get("base_directory") == str(directory):
        return None
    if not Path(recorded).is_dir() or os.path.realpath(recorded) == str(find_origin(directory)):
        return None
    return recorded
