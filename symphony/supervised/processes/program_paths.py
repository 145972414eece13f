"""Finding programs as execvp(3) does, once for all processes that run the same program.

`subprocess.Popen` prepares the path of a program in each directory of PATH, for each process. With
a typical PATH, this accounts for an eighth of the time needed to start a process.
"""

from __future__ import annotations

import os


class ProgramPaths:
    """The paths of programs, which are searched once. A program can be installed or removed at any
    time, so an object of this class is used for a moment only.
    """

    def __init__(self) -> None:
        self._found: dict[tuple[str, str], str | None] = {}

    def find(self, program: str, search: str) -> str | None:
        """Return the path of a program in the directories ``search``, which are separated by colons
        as in PATH.

        Return None if it is not found, if it is a path already, or if the result depends on the
        directory of the process.
        """
        key = program, search
        if key not in self._found:
            self._found[key] = _find(program, search)
        return self._found[key]


def _find(program: str, search: str) -> str | None:
    if not program or os.sep in program:
        return None
    for directory in search.split(os.pathsep):
        if not directory.startswith(os.sep):
            return None
        path = f"{directory}/{program}"
        if os.path.isfile(path) and os.access(path, os.X_OK):  # noqa: PTH113
            return path
    return None
