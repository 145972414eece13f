"""The current experiment for each backend, which commands use if no experiment is named.

The name is stored in the state directory, in one file per backend.
"""

from __future__ import annotations

import os
from pathlib import Path

from symphony.commandline.exit_codes import UsageError
from symphony.errors import with_filename
from symphony.host.run.directory import state_root


def require_current(backend: str) -> str:
    """Return the current experiment. Raises `UsageError` if none is set."""
    current = get_current(backend)
    if current is None:
        raise UsageError(
            f"no current experiment on {backend}; name an experiment, or set the current one with: "
            "symphony switch-experiment NAME"
        )
    return current


def get_current(backend: str) -> str | None:
    """Return the current experiment, or None if none is set."""
    try:
        return _file_of(backend).read_text().strip() or None
    except FileNotFoundError:
        return None


def set_current(backend: str, experiment: str) -> None:
    """Make an experiment the current experiment."""
    file = _file_of(backend)
    file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    # The file is replaced atomically because another process can read it at any time.
    temporary = file.with_name(f"{file.name}.{os.getpid()}")
    with with_filename(file):
        try:
            temporary.write_text(f"{experiment}\n")
            temporary.replace(file)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise


def clear_current(backend: str, experiment: str) -> None:
    """Unset the current experiment if it is ``experiment``."""
    if get_current(backend) == experiment:
        _file_of(backend).unlink(missing_ok=True)


def _file_of(backend: str) -> Path:
    return state_root("current") / backend
