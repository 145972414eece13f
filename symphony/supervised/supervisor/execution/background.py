"""Finding the programs that processes have left running in the background.

The program of a process can become a daemon, as ``redis-server --daemonize yes`` does. The process
has then exited with 0, although its work has just begun, so the user must be told.
"""

from __future__ import annotations

import time
from collections.abc import Collection

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.supervisor.event_loop import ErrorCallback, EventLoop
from symphony.supervised.supervisor.execution.facts import Facts
from symphony.supervised.supervisor.execution.supervised_process import ProcessTable
from symphony.supervised.supervisor.process_host import LeftProgram, ProcessHost

# How long after an exit the programs of the machine are listed. One list serves all exits in the
# meantime, and a daemon has its final pid by then.
LOOK_SECONDS = 0.1
# The next list is made when this multiple of the time that the previous one took has passed, so
# that exits in experiments with thousands of processes do not need more than 2 % of a processor.
PAUSE_FACTOR = 50


class BackgroundPrograms:
    """The programs that processes of one run which have succeeded have left running.

    Programs that are still in the process groups of their processes are not included, because they
    are stopped. ``on_error`` is called with an error of the system.
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
        # The processes for which the next look is made.
        self._exited: dict[str, None] = {}
        # The programs whose exits are watched, by their processes.
        self._watched: dict[str, ProcessId] = {}
        self._next_time = 0.0
        self._is_scheduled = False

    def note_exit(self, name: str) -> None:
        """Look soon for programs that a process has left behind which has exited with 0."""
        self._exited[name] = None
        if not self._is_scheduled:
            self._is_scheduled = True
            pause = max(LOOK_SECONDS, self._next_time - time.monotonic())
            self._loop.after(pause, self._look_as_scheduled)

    def cancel(self, name: str) -> None:
        """Forget what a process has left behind, because it is started again."""
        self._exited.pop(name, None)
        self._watched.pop(name, None)

    def look(self) -> None:
        """Look now for the programs of processes that have just exited, if there are some."""
        names = [name for name in self._exited if self._processes.get(name) is not None]
        self._exited.clear()
        if not names:
            return
        begin = time.monotonic()
        try:
            self._note_programs(names)
        except OSError as exc:
            self._on_error(exc)
        end = time.monotonic()
        self._next_time = end + PAUSE_FACTOR * (end - begin)

    def _look_as_scheduled(self) -> None:
        self._is_scheduled = False
        self.look()

    def _note_programs(self, names: Collection[str]) -> None:
        found = self._host.find_strays(self._processes.leaders(), names)
        for name in names:
            stray = found.get(name)
            if stray is None:
                self._watched.pop(name, None)
                if self._facts.seen(name).background:
                    self._facts.note(name, in_background=False)
                continue
            program = f"{stray.program} (pid {stray.process.pid})"
            self._facts.note(name, background=program, in_background=True)
            self._watch(name, stray)

    def _watch(self, name: str, stray: LeftProgram) -> None:
        if self._watched.get(name) == stray.process:
            return
        self._watched[name] = stray.process

        def look_again() -> None:
            # Another program of the process can be running, such as the child of a daemon that has
            # forked twice.
            if self._watched.get(name) == stray.process:
                del self._watched[name]
                self.note_exit(name)

        stray.watch(self._loop, look_again)
