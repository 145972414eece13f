"""Running git in the user's repositories."""

from __future__ import annotations

import os
from pathlib import Path

# No external program that the repository's configuration names is run, except content filters.
GIT = ("git", "-c", "core.fsmonitor=false", "--no-optional-locks")


def is_in_repository(directory: Path) -> bool:
    """Return whether a directory or one of its parents contains ``.git``.

    This check is much faster than git.
    """
    return any((parent / ".git").exists() for parent in (directory, *directory.parents))


def git_environment() -> dict[str, str]:
    """Return this program's environment without the variables that select another repository.

    A hook of git has such variables.
    """
    return {key: value for key, value in os.environ.items() if key not in _REPOSITORY_VARIABLES}


_REPOSITORY_VARIABLES = frozenset(
    {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}
)
