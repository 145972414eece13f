"""Each backend's current experiment, which commands use if the user names no experiment.

The name is stored in the state directory, in one file per backend.
"""

from __future__ import annotations

from pathlib import Path

from symphony.commandline.exit_codes import UsageError
from symphony.errors import SpecError
from symphony.private_directories import create
from symphony.replace_file import replace_file
from symphony.state_directory import check_state_directory, state_root


def require_current(backend: str) -> str:
    """Return the current experiment of ``backend``. Raises `UsageError` if none is set."""
    current = get_current(backend)
    if current is None:
        raise UsageError(
            f"no current experiment on {backend}; name an experiment, or set the current one with: "
            "symphony switch-experiment NAME"
        )
    return current


def get_current(backend: str) -> str | None:
    """Return the current experiment of ``backend``, or None if none is set."""
    try:
        return _file_of(backend).read_text().strip() or None
    except FileNotFoundError:
        return None


def set_current(backend: str, experiment: str) -> None:
    """Make ``experiment`` the current experiment of ``backend``."""
    file = _file_of(backend)
    create(file.parent)
    replace_file(file, [f"{experiment}\n".encode()])


def clear_current(backend: str, experiment: str) -> None:
    """If ``experiment`` is the current experiment of ``backend``, unset it."""
    try:
        current = get_current(backend)
    except SpecError:
        # Another user can change the state directory, so no experiment could be set.
        return
    if current == experiment:
        _file_of(backend).unlink(missing_ok=True)


def _file_of(backend: str) -> Path:
    directory = state_root("current")
    check_state_directory(directory)
    return directory / backend
