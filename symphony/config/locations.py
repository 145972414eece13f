"""The files and environment variables from which the configuration is read.

Every command-line invocation runs this code, so this module imports few other modules and does
little work.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from symphony.support.directories.home import home_directory

SUFFIXES = (".yml", ".yaml", ".json", ".toml")
PROJECT_FILE_NAMES = tuple(f".symphony{suffix}" for suffix in SUFFIXES)
USER_FILE_NAMES = tuple(f"config{suffix}" for suffix in SUFFIXES)
FILE_VARIABLE = "SYMPHONY_CONFIG"

# Maps environment variables to the fields that they set.
VARIABLES = {
    "SYMPHONY_BACKEND": "backend",
    "SYMPHONY_PROFILE": "profile",
    "SYMPHONY_USERNAME": "username",
    "SYMPHONY_EXPERIMENT_FOLDER": "experiment_folder",
    "SYMPHONY_CONTEXT": "context",
    "SYMPHONY_NAMESPACE": "namespace",
    "SYMPHONY_KUBECONFIG": "kubeconfig",
    "SYMPHONY_IMAGE": "image",
}

# The variables on which the configuration depends. If one of them changes, the configuration is
# read again.
WATCHED_VARIABLES = (FILE_VARIABLE, "XDG_CONFIG_HOME", "HOME", *VARIABLES)


class FileLocation(NamedTuple):
    """The path of a configuration file, which may not exist.

    ``kind`` is ``project``, ``user`` or the name of the variable that contains the path.
    """

    kind: str
    path: Path
    exists: bool


def working_directory() -> Path | None:
    """Return the working directory, or None if the directory has been removed."""
    try:
        return Path.cwd()
    except OSError:
        return None


def expand_user(path: str | os.PathLike[str]) -> Path:
    """Return ``path`` with a leading ``~`` or ``~user`` replaced by the user's home directory.

    If there is no such user, the path is returned unchanged, whereas `Path.expanduser` raises an
    error.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111


def project_files(directory: Path, home: Path) -> list[Path]:
    """Return the configuration files of the project that contains ``directory``.

    The search starts at ``directory`` and goes up to ``home`` or the root. It ends at the first
    directory that contains a configuration file, and passes over files that `is_passed_over`
    describes. A directory may contain only one configuration file; `read_sources` raises
    `SpecError` if there are several.
    """
    for candidate in (directory, *directory.parents):
        found = [
            path for path in _existing(candidate, PROJECT_FILE_NAMES) if not is_passed_over(path)
        ]
        if found or candidate == home:
            return found
    return []


def is_passed_over(path: Path) -> bool:
    """Return whether a project file belongs to another user, in a directory that every user may
    write to, such as /tmp.

    Any user can create such a file, and it must not affect everyone who works below the directory.
    """
    own_users = (0, os.geteuid())
    if path.lstat().st_uid in own_users and path.stat().st_uid in own_users:
        return False
    return bool(path.parent.stat().st_mode & stat.S_IWOTH)


def user_directory(environ: Mapping[str, str]) -> Path:
    """Return the user's configuration directory.

    As the XDG Base Directory Specification requires, a relative path in XDG_CONFIG_HOME is ignored.
    """
    config_home = environ.get("XDG_CONFIG_HOME", "")
    if config_home.startswith("/"):
        return Path(config_home) / "symphony"
    return home_directory(environ) / ".config" / "symphony"


def user_files(environ: Mapping[str, str]) -> list[Path]:
    """Return the user's configuration files.

    Only one such file may exist; `read_sources` raises `SpecError` if there are several.
    """
    return _existing(user_directory(environ), USER_FILE_NAMES)


def file_locations(environ: Mapping[str, str]) -> list[FileLocation]:
    """Return the configuration files, sorted from the highest priority to the lowest.

    If there is no project file or no user file, the result contains the path at which the missing
    file can be created.
    """
    directory = working_directory()
    project = [] if directory is None else project_files(directory, home_directory(environ))
    locations = [FileLocation("project", path, True) for path in project]
    if not locations:
        path = (directory or Path()) / PROJECT_FILE_NAMES[0]
        locations.append(FileLocation("project", path, False))
    named = environ.get(FILE_VARIABLE)
    if named:
        path = expand_user(named)
        locations.append(FileLocation(FILE_VARIABLE, path, _exists(path)))
    user = user_files(environ)
    locations += [FileLocation("user", path, True) for path in user]
    if not user:
        path = user_directory(environ) / USER_FILE_NAMES[0]
        locations.append(FileLocation("user", path, False))
    return locations


def _existing(directory: Path, names: Sequence[str]) -> list[Path]:
    return [path for path in map(directory.joinpath, names) if _is_file(path)]


def _exists(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:
        # For example, the path is too long.
        return False


def _is_file(path: Path) -> bool:
    """Return whether a file exists and is an ordinary file. Reading a pipe might never end."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except OSError:
        # There is no such file, or the user is not permitted to read the directory.
        return False
