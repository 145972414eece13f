"""Asking the kernel about children of this process, ten times as fast as reading ``/proc``.

The pid of a child is not used again before this process collects its exit.
"""

from __future__ import annotations

import contextlib
import os


def child_pids() -> list[int]:
    """Return the pids of the children of this process, zombies included.

    Return an empty list if the kernel does not list them.
    """
    found: list[int] = []
    with contextlib.suppress(OSError):
        for thread in os.listdir("/proc/self/task"):
            with (
                contextlib.suppress(OSError),
                open(f"/proc/self/task/{thread}/children", encoding="ascii") as file,  # noqa: PTH123
            ):
                found += map(int, file.read().split())
    return found


def active_children() -> frozenset[int]:
    """Return the pids of the children of this process if all of them are running.

    Return an empty set if a child has exited or is suspended, or if the kernel does not list the
    children. Then, each child must be examined. This takes two calls, however many children there
    are.
    """
    pids = child_pids()
    options = os.WEXITED | os.WSTOPPED | os.WNOHANG | os.WNOWAIT
    try:
        is_unchanged = os.waitid(os.P_ALL, 0, options) is None
    except ChildProcessError:
        return frozenset()
    return frozenset(pids) if is_unchanged else frozenset()


def has_child_exited(pid: int) -> bool | None:
    """Return whether a child of this process has exited, or None if the process is no child."""
    try:
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
    except ChildProcessError:
        return None


def is_running_child(pid: int) -> bool:
    """Return whether a process is a child of this process and has not exited."""
    return has_child_exited(pid) is False


def is_leading_child(pid: int) -> bool:
    """Return whether a process is a running child of this process and leads a process group."""
    try:
        return os.getpgid(pid) == pid and is_running_child(pid)
    except ProcessLookupError:
        return False
