"""The limit of open files, which who watches many processes raises for itself and not for them."""

from __future__ import annotations

import resource


def raise_open_files() -> tuple[int, int] | None:
    """Raise the limit of this process as far as it goes; what it was, or None where nothing changed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return None
    return None if soft == hard else (soft, hard)
