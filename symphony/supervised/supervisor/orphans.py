"""Adopt the orphans of this process, and collect their exits.

When a program exits, its children become children of PID 1, or of the nearest ancestor that has
requested this. PID 1 of a container often collects no exits, so that each orphan remains as a
zombie, and zombies count towards the limit on processes; see prctl(2), PR_SET_CHILD_SUBREAPER.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Callable, Collection

from symphony.supervised.processes.identity import is_zombie
from symphony.supervised.processes.own_children import child_pids
from symphony.supervised.supervisor.event_loop import EventLoop

_PR_SET_CHILD_SUBREAPER = 36
# A zombie that is observed this many times in a row is an orphan. Other code of this program
# collects the exits of the commands that it runs, and does so earlier.
OBSERVATIONS = 4
CHECK_SECONDS = 0.2


class OrphanReaper:
    """The reaper of the orphans of one program.

    ``own_pids`` returns the pids of the children whose exits other code collects at any later time.
    """

    def __init__(self, loop: EventLoop, own_pids: Callable[[], Collection[int]]) -> None:
        self._loop = loop
        self._own_pids = own_pids
        self._observed: dict[int, int] = {}
        self._is_scheduled = False

    def start(self) -> None:
        """Adopt orphans from now on. If the system does not support this, do nothing."""
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) == 0:
            self._loop.on_signal(signal.SIGCHLD, self._schedule)
            self._schedule()

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            # The check finds all exits that take place before it.
            self._loop.suspend_signal(signal.SIGCHLD)
            self._loop.after(CHECK_SECONDS, self._check)

    def _check(self) -> None:
        """Collect the exits of zombies that have been observed several times."""
        self._is_scheduled = False
        self._loop.resume_signal(signal.SIGCHLD)
        own = self._own_pids()
        zombies = [pid for pid in child_pids() if pid not in own and is_zombie(pid)]
        self._observed = {pid: self._observed.get(pid, 0) + 1 for pid in zombies}
        for pid, count in list(self._observed.items()):
            if count >= OBSERVATIONS:
                del self._observed[pid]
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
        if self._observed:
            self._schedule()
