"""The scratch directories of processes, in which each process can write files for itself."""

from __future__ import annotations

import os
from collections.abc import Mapping

SCRATCH_VARIABLE = "SYMPHONY_SCRATCH_DIR"
_MODE = 0o700


def create_scratch_directory(env: Mapping[str, str]) -> None:
    """Create the directory that the variables of a process name. Raises OSError.

    A process that is restarted keeps its files.
    """
    path = env.get(SCRATCH_VARIABLE)
    if path is None:
        return
    try:
        os.mkdir(path, _MODE)  # noqa: PTH102
    except FileExistsError:
        return
    except FileNotFoundError:
        # This is the first process of the run.
        os.makedirs(os.path.dirname(path), _MODE, exist_ok=True)  # noqa: PTH103, PTH120
        os.mkdir(path, _MODE)  # noqa: PTH102
