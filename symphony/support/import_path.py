"""The import path of symphony's own programs, on which no module of the user hides one of theirs.

Python searches the directory of the program or the current directory first, then the directories in
PYTHONPATH, and then its standard library. A file such as ``queue.py`` in one of the user's
directories would therefore replace a module that symphony needs.

This module is imported before the path is corrected, so it imports only what Python has already
imported at its start.
"""

from __future__ import annotations

import os
import sys

_STANDARD_LIBRARY = os.path.dirname(os.__file__)  # noqa: PTH120
_SITE_DIRECTORIES = ("site-packages", "dist-packages")
# The directory that contains the package `symphony`.
_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))  # noqa: PTH100, PTH120
_OWN_DIRECTORY = os.path.dirname(_PACKAGE)  # noqa: PTH120


def use_own_import_path() -> None:
    """Change the import path of this process; see `own_import_path`."""
    sys.path[:] = own_import_path()


def own_import_path() -> list[str]:
    """Return the import path of this process with the user's directories at the end.

    The user's directories are those before the standard library. If symphony is installed in one of
    them, this one follows the standard library, so that all of symphony's modules have the same
    version.
    """
    users, standard, others = _parts(sys.path)
    own = [entry for entry in users if entry == _OWN_DIRECTORY]
    rest = [entry for entry in users if entry != _OWN_DIRECTORY]
    return list(dict.fromkeys([*standard, *own, *others, *rest]))


def import_path_of_program(directory: str) -> list[str]:
    """Return the import path for a Python file in ``directory`` that this process executes.

    The directory is first, as in Python. The directories in PYTHONPATH follow the standard library,
    because symphony imports modules while the file is executed.
    """
    _, standard, others = _parts(own_import_path())
    value = "" if sys.flags.ignore_environment else os.environ.get("PYTHONPATH", "")
    users = [entry for entry in value.split(os.pathsep) if entry]
    return list(dict.fromkeys([directory, *standard, *users, *others]))


def forget_modules_of_program(directory: str) -> None:
    """Forget the modules in ``directory`` that have the name of a module of the standard library.

    Otherwise, symphony would use these modules when it imports one of the standard library.
    """
    for name, module in list(sys.modules.items()):
        path = getattr(module, "__file__", None) or ""
        is_standard_name = name.partition(".")[0] in sys.stdlib_module_names
        if is_standard_name and path.startswith(os.path.join(directory, "")):  # noqa: PTH118
            del sys.modules[name]


def _parts(path: list[str]) -> tuple[list[str], list[str], list[str]]:
    """Return the entries of an import path before, in, and after the standard library."""
    entries = [entry for entry in map(_absolute, path) if entry]
    standard = [entry for entry in entries if _is_standard(entry)]
    if not standard:
        return [], [], entries
    first = entries.index(standard[0])
    others = [entry for entry in entries[first:] if entry not in standard]
    return entries[:first], standard, others


def _is_standard(entry: str) -> bool:
    """Return whether an entry of the import path belongs to the standard library."""
    library = os.path.dirname(_STANDARD_LIBRARY)  # noqa: PTH120
    if os.path.dirname(entry) == library and entry.endswith(".zip"):  # noqa: PTH120
        return True
    is_inside = f"{entry}/".startswith(f"{_STANDARD_LIBRARY}/")
    return is_inside and not any(name in entry for name in _SITE_DIRECTORIES)


def _absolute(entry: str) -> str:
    """Return the absolute path of an entry, or an empty string if there is no current directory."""
    try:
        return os.path.abspath(entry)  # noqa: PTH100
    except FileNotFoundError:
        return ""
