"""The limit on open files in this process."""

from __future__ import annotations

import resource


def raise_open_file_limit() -> tuple[int, int] | None:
    """Raise the soft limit on open files in this process to the hard limit.

    A process that monitors many other processes needs a file descriptor for each of them. Return
    the previous limits (soft, hard), so that child processes can be started with those limits.
    Return None if the limit was not changed.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        return None
    if soft == hard:
        return None
    return soft, hard
