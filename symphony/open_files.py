"""The limit of open files of this process."""

from __future__ import annotations

import resource


def raise_open_file_limit() -> tuple[int, int] | None:
    """Raise the soft limit of open files of this process to its hard limit.

    A process that watches many others needs a file descriptor for each of them. Return the previous
    limits (soft, hard), so that child processes can be started with the same ones, or None if
    nothing was changed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return None
    if soft == hard:
        return None
    return soft, hard
