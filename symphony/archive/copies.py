"""The copies of an experiment: the same description, launched from several origins at a time.

Each worktree of a repository, for example, can have its own copy. A copy is an experiment of its
own, which is called ``NAME-LABEL``. The label follows from the origin alone, so that each command
in the origin finds its copy; see `symphony.archive.origin`.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from symphony.archive.origin import find_origin
from symphony.errors import SpecError
from symphony.support.names import suggested_name

if TYPE_CHECKING:
    from symphony.archive.archive import Run


def copy_name(name: str, directory: Path) -> str:
    """Return the name of the copy of the experiment ``name`` that belongs to the origin of a
    directory.

    Raises `SpecError` if the name of the origin contains nothing that a label can contain.
    """
    origin = find_origin(directory)
    label = suggested_name(origin.name)
    if not label:
        raise SpecError(
            f"the label of a copy is the name of its directory, and {str(origin)!r} contains no "
            "letter and no digit; choose another name with --name"
        )
    return f"{name}-{label}"


def is_copy(run: Run, name: str, directory: Path) -> bool:
    """Return whether a run is that of the copy of the experiment ``name`` that belongs to the
    origin of a directory.
    """
    given = run.summary.get("given")
    if not isinstance(given, dict) or given.get("copy_of") != name:
        return False
    has_origin = run.summary.get("origin") == str(find_origin(directory))
    # `rerun --name` keeps the options of a copy.
    return has_origin and run.experiment == copy_name(name, directory)
