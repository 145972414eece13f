"""Writing the event log. No event is lost while the disk is full, and the size is limited.

The event log has a reserve: disk blocks that are allocated beyond its end, which no other file can
use. If the reserve is used up too, the events are kept in memory until they can be written, and a
note tells readers that the log is incomplete.

The state at some point in the log is kept in memory. When half of the maximum size follows this
point, a new file replaces the log in one step. It contains this state, as the event "checkpoint",
and the events after it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Iterable
from pathlib import Path

from symphony.errors import with_filename
from symphony.plan.state import Event, RunState, checkpoint
from symphony.supervised.record.directory import NO_SPACE_ERRORS, RunDirectory, free_bytes
from symphony.supervised.record.event_file import checkpoint_lengths, encode
from symphony.supervised.record.note import NoteWriter
from symphony.supervised.supervisor.capture.file_blocks import allocate, can_punch_holes
from symphony.support.data_classes import dataclass
from symphony.support.directories.state_home import STATE_VARIABLE

# The size of the reserve. It has space for the events of a stop, and for some restarts.
RESERVE_BYTES, RESERVE_BYTES_PER_PROCESS = 16 << 10, 1 << 10
# The maximum size of the log, which can be exceeded by half after a supervisor was replaced. A
# checkpoint contains less than 1 KiB for each process. Each command that needs the state reads the
# whole log, which takes about 100 ms for 1 MiB.
LIMIT_BYTES, LIMIT_BYTES_PER_PROCESS = 4 << 20, 4 << 10
_COPY_BYTES = 1 << 20


class EventLog:
    """The event log of a run that is being supervised.

    Raises OSError if the log cannot be created, or if the disk has no space for its reserve.
    ``processes`` is the number of processes of the experiment, and ``state`` is the state after all
    events, which the caller updates before it appends events. If a killed supervisor has written
    to the log, the new events follow its events.
    """

    def __init__(
        self, run: RunDirectory, notes: NoteWriter, processes: int, state: RunState
    ) -> None:
        self._path = str(run.events)
        self._state = state
        self._notes = notes
        self._descriptor = os.open(
            run.events, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600
        )
        self._written_bytes = os.fstat(self._descriptor).st_size
        # The end of the last allocated block, or None if the file system has no reserves.
        self._reserve_end: int | None = self._written_bytes
        self.set_processes(processes)
        self._checkpoint: _Checkpoint | None = None
        self._folded_bytes, self._checkpoint_bytes = checkpoint_lengths(run.events)
        self._unwritten = bytearray()
        if self._written_bytes and os.pread(self._descriptor, 1, self._written_bytes - 1) != b"\n":
            # The previous supervisor was killed while it wrote this line, which readers ignore.
            self._unwritten += b"\n"
        # The test would remove the beginning of a log that is not empty.
        self._is_limit_possible = self._written_bytes > 0 or can_punch_holes(self._descriptor)
        with with_filename(self._path):
            self._extend_reserve()

    def set_processes(self, count: int) -> None:
        """Adapt the reserve and the maximum size to another number of processes."""
        self._reserve_bytes = RESERVE_BYTES + RESERVE_BYTES_PER_PROCESS * count
        self._limit_bytes = LIMIT_BYTES + LIMIT_BYTES_PER_PROCESS * count

    def missing_support(self) -> str:
        """Return a message about what the file system of the log does not support, or ``""``.

        Call this method before `release_reserve`.
        """
        effects = []
        if not self._is_limit_possible:
            effects.append("log_limit has no effect")
        if self._reserve_end is None:
            effects.append("events are not recorded while the disk is full")
        if not effects:
            return ""
        return (
            f"{' and '.join(effects)}, because the file system of {Path(self._path).parent} does "
            f"not support fallocate; if this matters, set {STATE_VARIABLE} to a directory on a "
            "local disk"
        )

    @property
    def is_complete(self) -> bool:
        """True if all events have been written."""
        return not self._unwritten

    def append(self, events: Iterable[Event]) -> None:
        """Write events in one step. If that is not possible now, `write_pending` writes them later.

        If this program is killed in the middle of the step, the log contains the first of them.
        """
        for event in events:
            self._unwritten += encode(event)
        self.write_pending()

    def write_pending(self) -> None:
        """Write all events that could not be written yet.

        After an incomplete write, the next write continues in the middle of the line.
        """
        was_complete = not self._notes.has("log")
        try:
            while self._unwritten:
                count = os.write(self._descriptor, self._unwritten)
                self._written_bytes += count
                del self._unwritten[:count]
            self._extend_reserve()
        except OSError as exc:
            if self._unwritten and was_complete:
                self._notes.set("log", self._incomplete_message(exc))
        if not self._unwritten:
            if not was_complete:
                self._notes.set("log", "")
            self._limit_size()

    def _incomplete_message(self, error: OSError) -> str:
        problem = os.strerror(error.errno or 0)
        free = free_bytes(Path(self._path))
        if error.errno == errno.ENOSPC and free is not None:
            problem += f": {len(self._unwritten)} bytes are needed, and {free} are free"
        since = time.strftime("%H:%M:%S")
        return (
            f"events since {since} are not recorded yet, because {self._path} cannot be written "
            f"({problem}); the states can be out of date"
        )

    def release_reserve(self) -> None:
        """Release the blocks beyond the end of the log, because no more events follow."""
        self._reserve_end = None
        with contextlib.suppress(OSError):
            # Truncating a file to its own size releases the blocks beyond its end.
            os.ftruncate(self._descriptor, os.fstat(self._descriptor).st_size)

    def _limit_size(self) -> None:
        """Replace the oldest events by a checkpoint if the log is too large."""
        start = 0 if self._checkpoint is None else self._checkpoint.offset
        if self._written_bytes - start < self._limit_bytes // 2:
            return
        if self._checkpoint is not None:
            # If this is not possible, for example because the disk is full, it is tried again when
            # the log has grown.
            with contextlib.suppress(OSError):
                self._fold_events(self._checkpoint)
        folded_bytes = self._folded_bytes + self._written_bytes - self._checkpoint_bytes
        event = checkpoint(self._state, folded_bytes, time.time())
        self._checkpoint = _Checkpoint(self._written_bytes, folded_bytes, encode(event))

    def _fold_events(self, start: _Checkpoint) -> None:
        """Replace the log by a file that contains a checkpoint and the events after it.

        Raises OSError. In this case, the log does not change.
        """
        if not os.path.samestat(os.stat(self._path), os.fstat(self._descriptor)):  # noqa: PTH116
            # The directory was moved, and another run can have its name.
            return
        path = f"{self._path}.new"
        flags = os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
        try:
            size = _write_all(descriptor, start.line)
            offset = start.offset
            while piece := os.pread(self._descriptor, _COPY_BYTES, offset):
                size += _write_all(descriptor, piece)
                offset += len(piece)
            if self._reserve_end is not None:
                allocate(descriptor, size, 2 * self._reserve_bytes)
            os.replace(path, self._path)  # noqa: PTH105
        except OSError:
            os.close(descriptor)
            with contextlib.suppress(OSError):
                os.unlink(path)  # noqa: PTH108
            raise
        os.close(self._descriptor)
        self._descriptor = descriptor
        self._written_bytes = size
        self._folded_bytes, self._checkpoint_bytes = start.folded_bytes, len(start.line)
        if self._reserve_end is not None:
            self._reserve_end = size + 2 * self._reserve_bytes

    def _extend_reserve(self) -> None:
        """Allocate blocks if the remaining reserve is too small.

        Raises OSError if there is no space.
        """
        if self._reserve_end is None:
            return
        wanted_end = self._written_bytes + self._reserve_bytes
        if wanted_end <= self._reserve_end:
            return
        # Twice the necessary size is allocated, so that few calls are needed.
        length = 2 * self._reserve_bytes
        try:
            allocate(self._descriptor, self._written_bytes, length)
        except OSError as exc:
            if exc.errno in NO_SPACE_ERRORS:
                raise
            if exc.errno != errno.EINTR:
                self._reserve_end = None
            return
        self._reserve_end = self._written_bytes + length


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """The state at one point in the log.

    ``offset`` is the point in the present file, and ``folded_bytes`` the length of all lines before
    it since the beginning of the run. ``line`` is the line of the checkpoint.
    """

    offset: int
    folded_bytes: int
    line: bytes


def _write_all(descriptor: int, data: bytes) -> int:
    """Write data completely, and return its length."""
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
    return len(data)
