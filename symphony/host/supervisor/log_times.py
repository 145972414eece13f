"""Noting how long each log is at which time, without looking at files that do not change."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterable
from typing import TYPE_CHECKING

from symphony.host.run.directory import RunDirectory
from symphony.host.supervisor.event_loop import Loop

if TYPE_CHECKING:
    from symphony.host.inotify import Watch

INTERVAL = 1.0


class Growth:
    """Writes the notes that `symphony.host.logs` reads.

    A log that grows is noted, left alone for a second, noted again and then watched again: however much is
    written costs the same, and what nobody writes costs nothing. Where there is no inotify there are no notes.
    """

    def __init__(self, loop: Loop, run: RunDirectory) -> None:
        self._loop = loop
        self._run = run
        self._noted: dict[str, int] = {}
        self._active: set[str] = set()
        try:
            from symphony.host.inotify import Watch

            self._watch: Watch | None = Watch()
        except OSError:
            self._watch = None
            return
        loop.watch(self._watch.fileno(), self._told)

    def watch(self, processes: Iterable[str]) -> None:
        """Note how the logs of processes grow. For one that is watched already nothing changes."""
        for process in processes:
            if self._watch is not None and process not in self._active:
                self._watch_one(self._watch, process)

    def _watch_one(self, watch: Watch, process: str) -> None:
        try:
            watch.add(process, self._run.log(process))
        except OSError:  # the user's limit of watches; the log then has no times
            return
        if self._size(process) != self._noted.get(process, 0):
            self._begin(process)

    def close(self) -> None:
        """Note the last of everything."""
        if self._watch is not None:
            for process in list(self._noted.keys() | self._active):
                self._note(process)
            self._loop.unwatch(self._watch.fileno())
            self._watch.close()
            self._watch = None

    def _told(self) -> None:
        for process in self._watch.told() if self._watch else ():
            self._begin(process)

    def _begin(self, process: str) -> None:
        if process not in self._active:
            self._active.add(process)
            self._note(process)
            self._loop.after(INTERVAL, lambda: self._again(process))

    def _again(self, process: str) -> None:
        self._active.discard(process)
        if self._watch is not None:
            self._note(process)
            self.watch([process])

    def _note(self, process: str) -> None:
        size = self._size(process)
        if size != self._noted.get(process, 0):
            self._noted[process] = size
            with contextlib.suppress(OSError), self._run.when(process).open("a") as file:
                file.write(f"{time.time():.3f} {size}\n")

    def _size(self, process: str) -> int:
        try:
            return self._run.log(process).stat().st_size
        except FileNotFoundError:
            return 0
