"""Each backend's current experiment, which commands use if the user names no experiment.

The name is stored in the state directory, in one file per backend. If the user has set an
experiment that is not on the selected backend, the file of the selected backend contains
``BACKEND/NAME``.
"""

from __future__ import annotations

from pathlib import Path

from symphony.commandline.exit_codes import UsageError
from symphony.errors import SpecError
from symphony.support.directories.private import create
from symphony.support.directories.state_home import check_state_directory, state_root
from symphony.support.replace_file import replace_file


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
    other_backend, _, name = _read(backend).rpartition("/")
    return None if other_backend else name or None


def current_backend(backend: str) -> str:
    """Return the backend of the current experiment if ``backend`` is the selected one.

    It is ``backend`` itself unless the user has set an experiment on another backend.
    """
    other_backend, _, _ = _read(backend).rpartition("/")
    return other_backend or backend


def set_current(backend: str, experiment: str, *, selected: str | None = None) -> None:
    """Make ``experiment`` the current experiment of ``backend``.

    If another backend is ``selected``, commands without ``-b`` then use this experiment too.
    """
    _write(backend, experiment)
    if selected not in (None, backend):
        _write(str(selected), f"{backend}/{experiment}")


def clear_current(backend: str, experiment: str) -> None:
    """If ``experiment`` is the current experiment of ``backend``, unset it."""
    try:
        files = list(state_root("current").iterdir())
        check_state_directory(state_root("current"))
    except (OSError, SpecError):
        # No experiment is set. If another user can change the directory, none could be set.
        return
    for file in files:
        contents = experiment if file.name == backend else f"{backend}/{experiment}"
        if _read(file.name) == contents:
            file.unlink(missing_ok=True)


def _read(backend: str) -> str:
    """Return the name of an experiment, ``BACKEND/NAME`` for an experiment on another backend, or
    an empty text if no experiment is set.
    """
    try:
        return _file_of(backend).read_text().strip()
    except FileNotFoundError:
        return ""


def _write(backend: str, contents: str) -> None:
    file = _file_of(backend)
    create(file.parent)
    replace_file(file, [f"{contents}\n".encode()])


def _file_of(backend: str) -> Path:
    directory = state_root("current")
    check_state_directory(directory)
    return directory / backend
