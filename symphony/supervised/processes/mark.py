"""The mark of a run, which every process of the run inherits and which programs do not overwrite.

The environment of each process contains the run's identifier, but a program that changes its
process title, such as redis-server, overwrites the environment that ``/proc`` shows. The mark is
therefore stored in the kernel, as the soft limit RLIMIT_LOCKS. The kernel has ignored this limit
since Linux 2.4.25; see setrlimit(2). Like every resource limit, it is inherited by child processes
and is not changed by execve(2). Any user may set it, and it can be read for processes whose
environment cannot be read.

The mark also contains a number of the process of the experiment, so that a restart of the process
finds the daemons that it has left behind.

A process has no mark if the administrator has set a hard limit below the mark.
"""

from __future__ import annotations

import binascii
import contextlib
import resource
from collections.abc import Iterable

# The module `resource` has no name for this limit. The number is the same on all architectures.
RLIMIT_LOCKS = 10

# A mark consists of 40 bits of the run's identifier, 20 bits with a number of the process, and one
# higher bit, so that a mark is never a limit that an administrator might choose.
_IDENTIFIER_DIGITS, _PROCESS_BITS = 10, 20
_HIGH_BIT = 1 << 60


def mark_of(run_id: str, name: str = "") -> int | None:
    """Return the mark of a run, or None if ``run_id`` is not a hexadecimal identifier.

    With ``name``, it is the mark of the process with this name.
    """
    try:
        run = int(run_id[:_IDENTIFIER_DIGITS], 16)
    except ValueError:
        return None
    return _HIGH_BIT | run << _PROCESS_BITS | _process_number(name)


def run_part(mark: int | None) -> int | None:
    """Return the part of a mark that all processes of a run have."""
    return None if mark is None else mark >> _PROCESS_BITS


def name_in(mark: int | None, names: Iterable[str]) -> str | None:
    """Return the process of a mark if it is one of ``names``, or None if it is not known.

    >>> run = "0123456789abcdef"
    >>> name_in(mark_of(run, "b"), ["a", "b"]), name_in(mark_of(run), ["a", "b"])
    ('b', None)
    """
    if mark is None:
        return None
    number = mark % (1 << _PROCESS_BITS)
    found = [name for name in dict.fromkeys(names) if _process_number(name) == number]
    return found[0] if len(found) == 1 else None


def _process_number(name: str) -> int:
    """Return a number that two processes rarely have in common, or 0 if there is no name."""
    return 1 + binascii.crc32(name.encode()) % ((1 << _PROCESS_BITS) - 1) if name else 0


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
        self._run_id = run_id
        self._mark = mark_of(run_id)
        _, self._hard_limit = resource.getrlimit(RLIMIT_LOCKS)

    def of(self, name: str) -> MarkedChildren:
        """Return the object itself, which gives the mark of a process in its next block."""
        if self._mark is not None:
            self._mark = mark_of(self._run_id, name)
        return self

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
