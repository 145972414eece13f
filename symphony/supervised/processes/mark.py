"""The mark of a run, which every process of the run inherits and which programs do not overwrite.

The environment of each process contains the run's identifier, but a program that changes its
process title, such as redis-server, overwrites the environment that ``/proc`` shows. The mark is
therefore stored in the kernel, as the soft limit RLIMIT_LOCKS. The kernel has ignored this limit
since Linux 2.4.25; see setrlimit(2). Like every resource limit, it is inherited by child processes
and is not changed by execve(2). Any user may set it, and it can be read for processes whose
environment cannot be read.

A process has no mark if the administrator has set a hard limit below the mark.
"""

from __future__ import annotations

import contextlib
import resource

# The module `resource` has no name for this limit. The number is the same on all architectures.
RLIMIT_LOCKS = 10

# A mark consists of 60 bits of the run's identifier and one higher bit, so that a mark is never a
# limit that an administrator might choose.
_IDENTIFIER_DIGITS = 15
_HIGH_BIT = 1 << 60


def mark_of(run_id: str) -> int | None:
    """Return the mark of a run, or None if ``run_id`` is not a hexadecimal identifier."""
    try:
        return _HIGH_BIT | int(run_id[:_IDENTIFIER_DIGITS], 16)
    except ValueError:
        return None


def read_mark(pid: int) -> int | None:
    """Return the mark of a process, or None if the process has no mark or belongs to another user.

    The result can be a limit that is no mark.
    """
    try:
        return resource.prlimit(pid, RLIMIT_LOCKS)[0]
    except (OSError, ValueError):
        return None


class MarkedChildren:
    """A context manager that gives the mark of a run to the child processes that are started in its
    ``with`` blocks.

    Child processes that other threads start at the same time can receive the mark too, so only a
    supervisor may use this class. A supervisor enters one ``with`` block for each child, so each
    block makes only two system calls.
    """

    def __init__(self, run_id: str) -> None:
        self._mark = mark_of(run_id)
        _, self._hard_limit = resource.getrlimit(RLIMIT_LOCKS)

    def __enter__(self) -> None:
        if self._mark is not None:
            self._set_soft_limit(self._mark)

    def __exit__(self, *_: object) -> None:
        if self._mark is not None:
            self._set_soft_limit(self._hard_limit)

    def _set_soft_limit(self, limit: int) -> None:
        try:
            resource.setrlimit(RLIMIT_LOCKS, (limit, self._hard_limit))
        except (OSError, ValueError):
            # The hard limit does not allow marks.
            self._mark = None


def mark_process(pid: int, run_id: str) -> None:
    """Give the mark of a run to a running child process of the caller.

    Do nothing if the process has already exited, or if its limit cannot be changed. The child
    process must not have been reaped yet, because another process could have the pid otherwise.
    """
    mark = mark_of(run_id)
    if mark is not None:
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.prlimit(pid, RLIMIT_LOCKS)
            resource.prlimit(pid, RLIMIT_LOCKS, (mark, hard))


def remove_own_mark() -> None:
    """Remove the mark that this process may have inherited.

    A supervisor whose launcher is a process of another run does not belong to that run.
    """
    with contextlib.suppress(OSError, ValueError):
        _, hard = resource.getrlimit(RLIMIT_LOCKS)
        resource.setrlimit(RLIMIT_LOCKS, (hard, hard))
