"""Stop what the previous execution of a process has left behind, before the process starts again.

A program that has left the process group of its parent, as a daemon does, outlives the parent.
Otherwise, it would keep the port of the next execution, and answer in its place.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable

from symphony.host.supervisor.event_loop import EventLoop
from symphony.host.supervisor.process_host import Leaders, ProcessHost

# The interval at which the programs are listed again. It increases while they are running.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 0.25
_PAUSE_FACTOR = 1.5


class PreviousExecutions:
    """The programs that the previous executions of the processes of one run have left behind.

    ``leaders`` returns the identities of the running processes, and ``grace`` the grace period of a
    process in seconds. ``on_cleared`` is called with the names of processes that have waited and
    can start now.
    """

    def __init__(
        self,
        loop: EventLoop,
        host: ProcessHost,
        *,
        leaders: Callable[[], Leaders],
        grace: Callable[[str], float],
        on_cleared: Callable[[Collection[str]], None],
    ) -> None:
        self._loop = loop
        self._host = host
        self._leaders = leaders
        self._grace = grace
        self._on_cleared = on_cleared
        # The processes that have exited and have left nothing behind.
        self._cleared: set[str] = set()
        # The times on the monotonic clock at which programs are killed, by the names of their
        # processes.
        self._kill_times: dict[str, float] = {}
        self._pause = FIRST_PAUSE_SECONDS
        self._is_scheduled = False

    def note_start(self, name: str) -> None:
        """Note that a process has started, so that it can leave programs behind."""
        self._cleared.discard(name)
        self._kill_times.pop(name, None)

    def clear(self, exited: Collection[str], names: Iterable[str]) -> set[str]:
        """Return those of the processes ``names`` that cannot start yet.

        The programs that they have left behind are stopped. ``exited`` contains all processes that
        are not running. One look at the programs of the machine serves all of them.
        """
        unknown = [name for name in names if name not in self._cleared]
        if any(name not in self._kill_times for name in unknown):
            self._look(exited)
        found = {name for name in unknown if name not in self._cleared}
        new = [name for name in found if name not in self._kill_times]
        if new:
            now = time.monotonic()
            self._kill_times.update({name: now + self._grace(name) for name in new})
            self._stop(new, kill=False)
            self._pause = FIRST_PAUSE_SECONDS
            self._schedule()
        return found

    def _look(self, exited: Iterable[str]) -> None:
        owners = self._host.stray_owners(self._leaders())
        self._cleared.update(name for name in exited if name not in owners)

    def _stop(self, names: Collection[str], *, kill: bool) -> None:
        leaders = self._leaders()
        self._host.stop_strays(leaders, kill=kill, owners=names, spares_commands=True)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.after(self._pause, self._continue)

    def _continue(self) -> None:
        self._is_scheduled = False
        self._look(self._kill_times)
        cleared = [name for name in self._kill_times if name in self._cleared]
        for name in cleared:
            del self._kill_times[name]
        if self._kill_times:
            now = time.monotonic()
            late = [name for name, moment in self._kill_times.items() if now >= moment]
            if late:
                self._stop(late, kill=True)
            self._pause = min(self._pause * _PAUSE_FACTOR, LONGEST_PAUSE_SECONDS)
            self._schedule()
        if cleared:
            self._on_cleared(cleared)
