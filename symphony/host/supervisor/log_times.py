"""Recording the length of each log over time, without polling files that do not change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.event_loop import EventLoop

if TYPE_CHECKING:
    from symphony.host.inotify import FileWatcher

INTERVAL_SECONDS = 1.0


class LogTimes:
    """A recorder of log lengths. It writes the files that `symphony.host.logs` reads.

    When a log grows, its length is recorded at once and again after `INTERVAL_SECONDS`. Only after
    the second record is the log watched again. The cost is therefore independent of the amount of
    output, and a log without output costs nothing. If inotify is not available, nothing is
    recorded.
    """

    def __init__(self, loop: EventLoop, run: RunDirectory) -> None:
        self._loop = loop
        self._run = run
        self._recorded: dict[str, int] = {}
        self._growing: set[str] = set()
        self._watcher: FileWatcher | None = None
        try:
            from symphony.host.inotify import FileWatcher

            self._watcher = FileWatcher()
        except OSError:
            return
        loop.watch(self._watcher.fileno(), self._handle_changes)

    def watch(self, processes: Iterable[str]) -> None:
        """Start recording the growth of the processes' logs. Skip each log whose growth is already
        being recorded.
        """
        for process in processes:
            if self._watcher is not None and process not in self._growing:
                self._watch_log(self._watcher, process)

    def _watch_log(self, watcher: FileWatcher, process: str) -> None:
        try:
            watcher.add(process, self._run.log(process))
        except OSError:
            # The log does not exist, or the user's limit on inotify watches has been reached. No
            # times are recorded for this log.
            return
        # The watch reports only later changes, so check for output that was written before the
        # watch was created.
        if self._log_size(process) != self._recorded.get(process, 0):
            self._start_interval(process)

    def close(self) -> None:
        """Record the final length of every log, and stop watching."""
        if self._watcher is None:
            return
        for process in self._recorded.keys() | self._growing:
            self._record(process)
        self._loop.unwatch(self._watcher.fileno())
        self._watcher.close()
        self._watcher = None

    def _handle_changes(self) -> None:
        if self._watcher is not None:
            for process in self._watcher.changed():
                self._start_interval(process)

    def _start_interval(self, process: str) -> None:
        if process not in self._growing:
            self._growing.add(process)
            self._record(process)
            self._loop.after(INTERVAL_SECONDS, lambda: self._end_interval(process))

    def _end_interval(self, process: str) -> None:
        self._growing.discard(process)
        if self._watcher is not None:
            self._record(process)
            self.watch([process])

    def _record(self, process: str) -> None:
        size = self._log_size(process)
        if size == self._recorded.get(process, 0):
            return
        self._recorded[process] = size
        with contextlib.suppress(OSError), self._run.log_times(process).open("a") as file:
            file.write(f"{time.time():.3f} {size}\n")

    def _log_size(self, process: str) -> int:
        try:
            return self._run.log(process).stat().st_size
        except OSError:
            return 0
