"""The state directory, which contains the records of experiments on this machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from symphony.errors import SpecError, shown
from symphony.support.argument_checks import is_path
from symphony.support.directories import private as private_directories
from symphony.support.directories.home import home_directory

STATE_VARIABLE = "SYMPHONY_STATE_DIR"
# The directory next to the backends' directories that contains the records of earlier runs.
ARCHIVE_NAME = "runs"
# The subdirectory of an archive with the records of active runs whose other files are not on this
# machine. Their names begin with that of the experiment.
ACTIVE_NAME = ".active"


def state_root(purpose: str) -> Path:
    """Return the subdirectory of the state directory for ``purpose``, such as a backend's name.

    The state directory is SYMPHONY_STATE_DIR if that variable is set, and a subdirectory of the XDG
    state directory otherwise. Raises `SpecError` if the variable does not contain a path.
    """
    configured = _path_in(STATE_VARIABLE)
    if configured is not None:
        return configured.absolute() / purpose
    base = _path_in("XDG_STATE_HOME") or home_directory() / ".local" / "state"
    return base.absolute() / "symphony" / purpose


def backend_roots() -> list[Path]:
    """Return the directories in which the backends store their records by default, sorted."""
    state = state_root("any").parent
    try:
        names = sorted(os.listdir(state))
    except OSError:
        return []
    paths = [state / name for name in names if name != ARCHIVE_NAME]
    return [path for path in paths if path.is_dir()]


def active_records(experiment: str, roots: Iterable[Path]) -> list[Path]:
    """Return the directories in which the record of an active run of an experiment can be.

    These are the existing directories of the experiment in ``roots``, in which backends store their
    records, and the records of runs that are not on this machine. Nothing is read.
    """
    found = [root / experiment for root in roots]
    elsewhere = state_root(ARCHIVE_NAME) / ACTIVE_NAME
    with contextlib.suppress(OSError):
        names = sorted(os.listdir(elsewhere))
        found += [elsewhere / name for name in names if name.startswith(f"{experiment}-")]
    return [path for path in found if path.is_dir()]


def _path_in(variable: str) -> Path | None:
    """Return the path in an environment variable, or None if the variable is not set or empty."""
    value = os.environ.get(variable)
    if not value:
        return None
    if not is_path(value):
        raise SpecError(f"{variable} must be a path, not {shown(value)}")
    return Path(value)


def create_state_directory(directory: Path) -> None:
    """Create a directory for symphony's state, and its parents, if they do not exist.

    Raises SpecError if the directory cannot be created, or if another user can change or replace
    it; see `check_state_directory`.
    """
    # The directory of another user is reported, instead of an error during the creation.
    check_state_directory(directory)
    try:
        private_directories.create(directory)
    except PermissionError as exc:
        raise SpecError(
            f"the state directory {directory} cannot be created ({exc.filename}: {exc.strerror}); "
            f"set {STATE_VARIABLE} to a directory to which you can write"
        ) from exc
    check_state_directory(directory)


def check_state_directory(directory: Path) -> None:
    """Raise SpecError if another user can change or replace a directory with symphony's state, or
    if this user has no access to it because it belongs to another user.
    """
    what = "state directory"
    fix = (
        f"use a directory of your own, for example with {STATE_VARIABLE}, or with sudo -H if you "
        "use sudo"
    )
    private_directories.check(directory, what, fix)
    private_directories.check_access(directory, what, fix)
