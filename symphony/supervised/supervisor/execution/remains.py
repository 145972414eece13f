"""Stopping what the previous executions of processes have left behind.

A program that has left the process group of its parent, as a daemon does, outlives the parent.
Otherwise, it would keep the port of the next execution, and answer in its place.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Sequence

from symphony.supervised.supervisor.event_loop import ErrorCallback, EventLoop
from symphony.supervised.supervisor.execution.facts import Facts
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable
from symphony.supervised.supervisor.process_host import ProcessHost

# The interval at which the programs are listed again. It increases while they are running.
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.05, 0.25
_PAUSE_FACTOR = 1.5
# How long a look is postponed while other processes are being stopped, which may exit meanwhile.
COLLECTION_SECONDS = 0.02


class Remains:
    """The programs that previous executions of the processes of one run have left behind.

    ``on_error`` is called with an error that does not prevent the next start.
    """

    def __init__(
        self,
        loop: EventLoop,
        processes: ProcessTable,
        host: ProcessHost,
        facts: Facts,
        on_error: ErrorCallback,
    ) -> None:
        self._loop = loop
        self._processes = processes
        self._host = host
        self._facts = facts
        self._on_error = on_error
        # The times on the monotonic clock at which programs are killed, by the names of their
        # processes.
        self._kill_times: dict[str, float] = {}
        # The processes for which commands of users are stopped, too; see `Clear.spares_commands`.
        self._with_commands: set[str] = set()
        self._pause = FIRST_PAUSE_SECONDS
        self._is_scheduled = False
        # The processes for which the next look is the first one.
        self._new: dict[str, None] = {}
        self._is_postponed = False

    def clear(self, kill_times: dict[str, float], *, spares_commands: bool) -> None:
        """Look for the programs of processes, and stop them.

        ``kill_times`` maps the names of the processes to the times on the monotonic clock at which
        their programs are killed. One look at the programs of the machine serves all of them, and
        those that exit within `COLLECTION_SECONDS` while others are being stopped.
        """
        self._kill_times.update(kill_times)
        if spares_commands:
            self._with_commands.difference_update(kill_times)
        else:
            self._with_commands.update(kill_times)
        self._new.update(dict.fromkeys(kill_times))
        if self._is_postponed:
            return
        if not any(self._host.is_stopping(name) for name in self._processes.present):
            self._begin()
            return
        self._is_postponed = True
        self._loop.after(COLLECTION_SECONDS, self._begin)

    def _begin(self) -> None:
        """Look for the programs of new processes for the first time, and ask them to exit."""
        self._is_postponed = False
        # In the meantime, they can have been removed or started again.
        present = [name for name in self._new if self._processes.get(name) is not None]
        names = [name for name in present if name in self._kill_times]
        self._new.clear()
        found = self._look(names)
        if found:
            self._stop(found, kill=False)
            for name in found:
                self._facts.note(name, clearing=True)
            self._pause = FIRST_PAUSE_SECONDS
            self._schedule()

    def cancel(self, name: str) -> None:
        """Forget what a process has left behind, because it is started again."""
        self._kill_times.pop(name, None)

    def _look(self, names: Collection[str]) -> list[str]:
        """Return those of the processes of which programs are running. The others are clear."""
        try:
            found = self._find(names)
        except OSError as exc:
            # The programs cannot be listed. The processes must start nevertheless.
            self._on_error(exc)
            found = set()
        for name in names:
            if name not in found:
                self._kill_times.pop(name, None)
                self._facts.note(name, cleared=True, clearing=False)
        return [name for name in names if name in found]

    def _find(self, names: Collection[str]) -> set[str]:
        leaders = self._processes.leaders()
        found: set[str] = set()
        if not self._with_commands.issuperset(names):
            found = set(self._host.find_strays(leaders, names))
        with_commands = [name for name in names if name in self._with_commands]
        # The host does not report to which of these processes the programs belong.
        if with_commands and self._host.stop_strays(leaders, kill=False, owners=with_commands):
            found.update(with_commands)
        return found

    def _stop(self, names: Sequence[str], *, kill: bool) -> None:
        leaders = self._processes.leaders()
        sparing = [name for name in names if name not in self._with_commands]
        others = [name for name in names if name in self._with_commands]
        if sparing:
            self._host.stop_strays(leaders, kill=kill, owners=sparing, spares_commands=True)
        if others:
            self._host.stop_strays(leaders, kill=kill, owners=others)

    def _schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._loop.after(self._pause, self._continue)

    def _continue(self) -> None:
        self._is_scheduled = False
        remaining = self._look(list(self._kill_times))
        if not remaining:
            return
        now = time.monotonic()
        late = [name for name in remaining if now >= self._kill_times[name]]
        if late:
            self._stop(late, kill=True)
        self._pause = min(self._pause * _PAUSE_FACTOR, LONGEST_PAUSE_SECONDS)
        self._schedule()
