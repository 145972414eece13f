"""Where configuration is looked for. Quick, since every start of the command line asks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

ENDINGS = (".yml", ".yaml", ".json", ".toml")
PROJECT_NAMES = tuple(f".symphony{ending}" for ending in ENDINGS)
USER_NAMES = tuple(f"config{ending}" for ending in ENDINGS)
FILE_VARIABLE = "SYMPHONY_CONFIG"

# The fields that have a variable of the environment.
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

# What of the environment decides which files are read, and what variables say.
WATCHED = (FILE_VARIABLE, "XDG_CONFIG_HOME", "HOME", *VARIABLES)


def working_folder() -> Path | None:
    """The working directory, or None where somebody has removed it."""
    try:
        return Path.cwd()
    except OSError:
        return None


def home_folder(environ: Mapping[str, str]) -> Path:
    """The user's home."""
    given = environ.get("HOME")
    return Path(given) if given else Path.home()


def project_files(folder: Path, home: Path) -> list[Path]:
    """The files of the nearest of ``folder`` and its parents that has any, up to ``home`` or the root.

    More than one is a mistake that the reader refuses.
    """
    for place in (folder, *folder.parents):
        found = _there(place, PROJECT_NAMES)
        if found or place == home:
            return found
    return []


def user_folder(environ: Mapping[str, str]) -> Path:
    """The folder of the user's own configuration, by the XDG base directory specification."""
    given = environ.get("XDG_CONFIG_HOME", "")
    absolute = given.startswith("/")  # the specification: one that is relative is to be ignored
    return (Path(given) if absolute else home_folder(environ) / ".config") / "symphony"


def user_files(environ: Mapping[str, str]) -> list[Path]:
    """The files of the user's own configuration; more than one is a mistake."""
    return _there(user_folder(environ), USER_NAMES)


def _there(folder: Path, names: Sequence[str]) -> list[Path]:
    return [path for path in map(folder.joinpath, names) if _is_there(path)]


def _is_there(path: Path) -> bool:
    try:
        return path.exists() and not path.is_dir()
    except OSError:  # a folder that this user cannot look into
        return False
