"""The user's home directory."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from symphony.errors import SpecError


def home_directory(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the user's home directory.

    Raises SpecError if the directory is unknown, as for a user without a name in a container.
    """
    home = environ.get("HOME")
    if home:
        return Path(home)
    try:
        return Path.home()
    except RuntimeError as exc:
        raise SpecError(
            f"the home directory of user {os.getuid()} is unknown; set HOME to a directory"
        ) from exc
