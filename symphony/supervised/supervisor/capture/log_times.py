"""Recording the length of each log over time, and limiting it, without polling unchanged files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.supervisor.event_loop import EventLoop
from symphony.support.names import join_names
from symphony.support.replace_file import replace_file

if TYPE_CHECKING:
    from symphony.supervised.read.inotify import FileWatcher

INTERVAL_SECONDS = 1.0
# The interval for logs that inotify cannot watch.
POLL_INTERVAL_SECONDS = 10.0
# A file of recorded lengths is shortened when it is larger than this.
MAX_TIMES_BYTES = 1 << 18
# The topic of the note about a full disk.
_DISK_TOPIC = "disk"


class LogTimes:
    """A recorder of log lengths.

    It writes the files that `symphony.supervised.read.log_files` reads.

    When a log grows, its length is recorded at once and again after `INTERVAL_SECONDS`. In between,
    the log is not watched. The cost is therefore independent of the amount of output, and a log
    without output costs nothing. A log that inotify cannot watch is polled.

    ``limits`` maps process names to the maximum sizes of their logs in bytes. When a recorded
    length exceeds the limit, the oldest output is removed. If the file system does not support
    this, the log is not limited, and a message is added to ``notes``.
    """

    def __init__(
        self, loop: EventLoop, run: RunDirectory, limits: Mapping[str, int], notes: NoteWriter
    ) -> None:
        self._loop = loop
        self._run = run
        # Thousands of processes can exit at the same time, and pathlib is slow.
        self._logs = str(run.logs)
        self._limits = dict(limits)
        self._notes = notes
        self._unlimited: list[str] = []
        self._recorded: dict[str, int] = {}
        self._growing: set[str] = set()
        self._polled: set[str] = set()
        # The running processes that are about to exit.
        self._paused: set[str] = set()
        self._max_times_bytes: dict[str, int] = {}
        self._is_closed = False
        self._watcher: FileWatcher | None = None
        try:
            from symphony.supervised.read.inotify import FileWatcher

            self._watcher = FileWatcher()
        except OSError:
            # This system has no inotify, or the user's limit on inotify instances has been reached.
            return
        loop.watch(self._watcher.fileno(), self._handle_changes)

    def set_limits(self, limits: Mapping[str, int]) -> None:
        """Replace the maximum sizes of the logs."""
        self._limits = dict(limits)

    def watch(self, processes: Iterable[str]) -> None:
        """Start recording the growth of the processes' logs. Skip each log whose growth is already
        being recorded.
        """
        for process in processes:
            if process not in self._growing and process not in self._polled:
                self._watch_log(process)

    def pause(self, processes: Iterable[str]) -> None:
        """Do not watch the logs of processes for `INTERVAL_SECONDS`, because most of them exit.

        Closing the watcher takes 5 to 15 ms if it has watches, or had some shortly before, because
        the kernel waits until no CPU uses them.
        """
        paused = [name for name in processes if name not in self._growing]
        if self._watcher is None or self._is_closed:
            return
        for process in paused:
            self._watcher.remove(process)
        self._paused.update(paused)
        self._loop.after(INTERVAL_SECONDS, lambda: self._resume(paused))

    def _resume(self, processes: Iterable[str]) -> None:
        """Watch the logs again of those processes that have not exited."""
        remaining = self._paused.intersection(processes)
        self._paused -= remaining
        for process in remaining:
            self._end_interval(process)

    def _watch_log(self, process: str) -> None:
        log = self._path(process)
        try:
            if self._watcher is None:
                raise OSError("inotify is not available")
            self._watcher.add(process, log)
        except OSError:
            # The user's limit on inotify watches may have been reached.
            if os.path.exists(log):  # noqa: PTH110
                self._polled.add(process)
                self._loop.after(POLL_INTERVAL_SECONDS, lambda: self._poll(process))
            return
        # The watch reports only later changes, so check for output that was written before the
        # watch was created.
        if self._log_size(process) != self._recorded.get(process, 0):
            self._start_interval(process)

    def _poll(self, process: str) -> None:
        self._polled.discard(process)
        if not self._is_closed:
            self._record(process)
            self._watch_log(process)

    def record(self, process: str) -> None:
        """Record the length of a log now, for example because the process has exited.

        Lines that were written before an event can then be distinguished from later lines.
        """
        self._paused.discard(process)
        if not self._is_closed:
            self._record(process)

    def close(self) -> None:
        """Record the final length of every log, and stop watching."""
        if self._is_closed:
            return
        self._is_closed = True
        for process in self._recorded.keys() | self._growing | self._polled | self._paused:
            self._record(process)
        if self._watcher is not None:
            self._loop.unwatch(self._watcher.fileno())
            self._watcher.close()

    def _handle_changes(self) -> None:
        if self._watcher is not None and not self._is_closed:
            for process in self._watcher.changed():
                self._start_interval(process)

    def _start_interval(self, process: str) -> None:
        if process not in self._growing:
            self._growing.add(process)
            if self._watcher is not None:
                self._watcher.remove(process)
            self._record(process)
            self._loop.after(INTERVAL_SECONDS, lambda: self._end_interval(process))

    def _end_interval(self, process: str) -> None:
        self._growing.discard(process)
        if not self._is_closed:
            self._record(process)
            self.watch([process])

    def _note_full_disk(self) -> None:
        """Note permanently that the disk was full, because output of that time can be missing."""
        if not self._notes.has(_DISK_TOPIC) and self._run.is_disk_full():
            at = time.strftime("%Y-%m-%d %H:%M:%S")
            message = f"the disk of {self._run.logs} was full at {at}, so output can be missing"
            self._notes.set(_DISK_TOPIC, message)

    def _record(self, process: str) -> None:
        size = self._log_size(process)
        previous_size = self._recorded.get(process, 0)
        if size == previous_size:
            return
        self._recorded[process] = size
        # A process that fills the disk has written shortly before, so this check is sufficient.
        self._note_full_disk()
        # An error while writing these files must not stop the supervisor, for example if the disk
        # is full.
        with contextlib.suppress(OSError):
            if size < previous_size:
                self._forget_records(process)
            with self._run.log_times(process).open("a") as file:
                file.write(f"{time.time():.3f} {size}\n")
        if size > self._limits.get(process, size):
            self._apply_limit(process)

    def _forget_records(self, process: str) -> None:
        """Remove the records of a log that was truncated, because they are no longer valid."""
        from symphony.supervised.supervisor.capture.log_limit import forget_start

        forget_start(self._run.log(process))
        self._run.log_times(process).unlink(missing_ok=True)

    def _apply_limit(self, process: str) -> None:
        """Remove the output that exceeds the log's limit."""
        from symphony.supervised.supervisor.capture.log_limit import remove_old_output

        try:
            was_removed = remove_old_output(self._run.log(process), self._limits[process])
        except OSError as exc:
            del self._limits[process]
            self._unlimited.append(process)
            self._notes.set(
                "log limit",
                f"the logs of {join_names(self._unlimited, limit=3)} exceed their log_limit, "
                f"because old lines cannot be removed from files in {self._run.logs} "
                f"({exc.strerror})",
            )
            return
        if was_removed:
            with contextlib.suppress(OSError):
                self._shorten_times(process)

    def _shorten_times(self, process: str) -> None:
        """Remove the recorded lengths that refer to removed output, if the file has become large.

        The file is then left alone until it has doubled in size.
        """
        from symphony.supervised.read.log_files import first_kept_offset, log_times

        path = self._run.log_times(process)
        if path.stat().st_size <= self._max_times_bytes.get(process, MAX_TIMES_BYTES):
            return
        start = first_kept_offset(self._run.log(process))
        replace_file(
            path,
            (
                f"{at:.3f} {length}\n".encode()
                for at, length in log_times(self._run, process)
                if length > start
            ),
        )
        self._max_times_bytes[process] = max(MAX_TIMES_BYTES, 2 * path.stat().st_size)

    def _log_size(self, process: str) -> int:
        try:
            return os.stat(self._path(process)).st_size  # noqa: PTH116
        except OSError:
            return 0

    def _path(self, process: str) -> str:
        """Return the path of a log. Thousands of them are needed, and `Path` takes longer."""
        return f"{self._logs}/{process}.log"
