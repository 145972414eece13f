"""The current experiment of each backend: the one that is meant where none is named."""

from __future__ import annotations

import os
from pathlib import Path

from symphony.commandline.exit_codes import UsageError
from symphony.errors import with_filename
from symphony.host.run.directory import state_root


def name(backend: str) -> str:
    """The current experiment. Raises `UsageError` where none was chosen."""
    found = get(backend)
    if found is None:
        raise UsageError(
            f"which experiment? name one, or choose a current one for {backend} with: symphony switch-experiment NAME"
        )
    return found


def get(backend: str) -> str | None:
    """The current experiment, None where none was chosen."""
    try:
        return _place(backend).read_text().strip() or None
    except FileNotFoundError:
        return None


def choose(backend: str, experiment: str) -> None:
    """Make an experiment the current one."""
    place = _place(backend)
    place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    aside = place.with_name(f"{place.name}.{os.getpid()}")
    with with_filename(place):
        try:
            aside.write_text(f"{experiment}\n")
            aside.replace(place)
        except OSError:
            aside.unlink(missing_ok=True)
            raise


def forget(backend: str, experiment: str) -> None:
    """Let there be no current experiment, if it is this one."""
    if get(backend) == experiment:
        _place(backend).unlink(missing_ok=True)


def _place(backend: str) -> Path:
    return state_root("current") / backend
