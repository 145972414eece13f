"""Find the copy of an experiment that belongs to the working directory.

In the origin of a copy, the name of the experiment means this copy.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from symphony.archive.copies import copy_name, is_copy
from symphony.errors import SymphonyError
from symphony.support.names import is_name

if TYPE_CHECKING:
    from symphony.archive.archive import Run
    from symphony.cluster import Cluster


def find_own_copy(cluster: Cluster, name: str, directory: Path | None = None) -> Run | None:
    """Return the active run of the copy of the experiment ``name`` that belongs to a directory, or
    None if there is none.

    ``name`` contains the user name, if one is configured. The copy can be on another backend than
    ``cluster``. By default, the directory is the working directory.
    """
    if not is_name(name):
        return None
    try:
        place = Path.cwd() if directory is None else directory
        paths = cluster.implementation.recorded_runs.active_paths(copy_name(name, place))
    except (SymphonyError, OSError):
        # The working directory was removed, or has no name.
        return None
    if not paths:
        return None
    # Most commands need no archive, and its import takes time.
    from symphony.archive import archive

    for run in map(archive.load, paths):
        if is_copy(run, name, place):
            return run
    return None
