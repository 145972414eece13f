"""Reading process logs: in full, from the end, from a given time, and while they grow.

A log file contains only the output, without timestamps. While a log grows, the supervisor records
the time and the length of the log at most once a second; see
`symphony.supervised.supervisor.capture.log_times`. All output up to a recorded length was written
before the recorded time. ``since`` and the order of lines from different processes are therefore
accurate to about one second.

When a log exceeds its limit, the supervisor removes the oldest output, but the remaining output
keeps its offsets; see `symphony.supervised.supervisor.capture.log_limit`. All offsets in this
module are therefore valid before and after a removal. A file can also be truncated, for example by
the user. It is then read from its beginning.

No function reads a whole log into memory, except functions that return the log as one string.
"""

from __future__ import annotations

import contextlib
import heapq
import math
import os
import re
import time
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony import log_text
from symphony.events import EXIT_KINDS, EventKind
from symphony.log_blocks import LogBlock
from symphony.supervised.record.directory import REMOTE_PATIENCE_SECONDS, RunDirectory
from symphony.supervised.record.run_paths import LOG_START_SUFFIX

if TYPE_CHECKING:
    from symphony.events import ExperimentEvent
    from symphony.supervised.read.inotify import FileWatcher

POLL_SECONDS = 0.02
# The interval for files that other machines write. Each check can be a request to a file server.
REMOTE_POLL_SECONDS = 0.1
STATUS_CHECK_SECONDS = 0.5
# The part of a line that is kept in memory until the rest of the line has been written. A longer
# line is returned in parts.
MAX_LINE_BYTES = 1 << 24
_BLOCK_BYTES = 1 << 18
_TIMES_BLOCK_BYTES = 1 << 13

# The times of lengths are recorded with this precision.
_TIME_PRECISION_SECONDS = 0.001

# The key under which `follow` watches the event log. It cannot clash with a process name, because a
# process name is never empty.
_EVENTS_KEY = ""

TimedLength = tuple[float, int]
# A pattern for an incomplete last line that is not output of the process. Such a line does not
# count as one of the last lines of a log.
IgnoredLine = re.Pattern[bytes]


def log_times(run: RunDirectory, process: str) -> Iterator[TimedLength]:
    """Yield the ``(time, length)`` pairs recorded for a process's log, in the recorded order.

    Times are in seconds since the epoch, and lengths are in bytes. The file is read in blocks. If
    the supervisor replaces it in the meantime, the pairs that were already yielded are skipped.
    """
    path = run.log_times(process)
    inode, position, last_length = 0, 0, -1
    while True:
        try:
            with path.open("rb") as file:
                if os.fstat(file.fileno()).st_ino != inode:
                    inode, position = os.fstat(file.fileno()).st_ino, 0
                file.seek(position)
                block = file.read(_TIMES_BLOCK_BYTES)
        except FileNotFoundError:
            return
        # The last line can be incomplete while the supervisor writes it.
        complete, newline, _ = block.rpartition(b"\n")
        if not newline:
            return
        position += len(complete) + 1
        for line in complete.split(b"\n"):
            pair = _parse_timed_length(line)
            if pair is not None and pair[1] > last_length:
                last_length = pair[1]
                yield pair


def _parse_timed_length(line: bytes) -> TimedLength | None:
    """Return the time and the length in a line, or None if the line is not valid.

    If the disk was full, a line in the middle of the file can be incomplete.
    """
    try:
        at, length = line.split()
        return float(at), int(length)
    except ValueError:
        return None


def first_kept_offset(log: Path) -> int:
    """Return the byte offset at which the output that is still in a log starts.

    The offset is 0 unless the log has exceeded its limit. It is always the start of a line, unless
    the log contains a line that is longer than the limit.
    """
    try:
        offset = int(log.with_suffix(LOG_START_SUFFIX).read_bytes())
    except (FileNotFoundError, ValueError):
        return 0
    # A truncated log is shorter. Then the recorded offset is no longer valid.
    return offset if 0 <= offset <= _file_size(log) else 0


def start_offset(
    run: RunDirectory,
    process: str,
    since: float | None,
    tail: int | None,
    ignored: IgnoredLine | None = None,
) -> int:
    """Return the byte offset at which to start reading a process's log.

    ``since`` is in seconds since the epoch, and ``tail`` is a number of lines; see `tail_start`. If
    both are given, return the larger of the two offsets.
    """
    log = run.log(process)
    offset = first_kept_offset(log)
    if since is not None:
        lengths = (length for at, length in log_times(run, process) if at <= since)
        recorded = min(max(lengths, default=0), _file_size(log))
        offset = max(offset, line_start(log, recorded))
    if tail is not None:
        offset = max(offset, tail_start(log, tail, ignored))
    return offset


def line_start(path: Path, offset: int) -> int:
    """Return the byte offset at which the line that contains the byte at ``offset`` starts.

    This function is needed because a recorded length can fall in the middle of a line.
    """
    first = first_kept_offset(path)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return offset
    with file:
        while offset > first:
            size = min(_BLOCK_BYTES, offset - first)
            file.seek(offset - size)
            block = file.read(size)
            if b"\n" in block:
                return offset - size + block.rindex(b"\n") + 1
            offset -= size
    return first


def tail_start(path: Path, lines: int, ignored: IgnoredLine | None = None) -> int:
    """Return the byte offset at which the last ``lines`` lines of a file start.

    An incomplete last line counts as a line, unless it matches ``ignored``.
    """
    if lines <= 0:
        return _file_size(path)
    first = first_kept_offset(path)
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        end = position = file.seek(0, os.SEEK_END)
        wanted = lines
        while position > first:
            size = min(_BLOCK_BYTES, position - first)
            position -= size
            file.seek(position)
            block = file.read(size)
            is_last_block = position + size == end
            if is_last_block and not _ends_with_a_line(block, ignored):
                # The last newline terminates the last line and does not separate two lines.
                wanted += 1
            newlines = block.count(b"\n")
            if newlines >= wanted:
                return position + _nth_last_newline(block, wanted) + 1
            wanted -= newlines
    return first


def _ends_with_a_line(block: bytes, ignored: IgnoredLine | None) -> bool:
    """Return whether the incomplete last line of a file counts as a line.

    ``block`` is the end of the file.
    """
    last_line = block.rpartition(b"\n")[2]
    return bool(last_line) and not (ignored is not None and ignored.fullmatch(last_line))


def _nth_last_newline(block: bytes, count: int) -> int:
    index = len(block)
    for _ in range(count):
        index = block.rindex(b"\n", 0, index)
    return index


def iter_text(
    run: RunDirectory,
    process: str,
    *,
    since: float | None = None,
    tail: int | None = None,
    ignored: IgnoredLine | None = None,
) -> Iterator[str]:
    """Yield a process's output so far as pieces of text.

    The text is that of `symphony.log_text`. ``since``, ``tail`` and ``ignored`` have the same
    meaning as in `start_offset`. If the process has no log yet, yield nothing.
    """
    log = run.log(process)
    # A process that writes faster than the caller reads must not keep the caller reading forever.
    end = _file_size(log)
    reader = LogTail(log, start_offset(run, process, since, tail, ignored))
    decoder = log_text.decoder()
    for block in reader.read_blocks(end):
        yield decoder.decode(block)
    yield decoder.decode(b"", final=True)


def read(
    run: RunDirectory, process: str, *, since: float | None = None, tail: int | None = None
) -> str:
    """Return a process's output so far as a string; see `iter_text`."""
    return "".join(iter_text(run, process, since=since, tail=tail))


class LogTail:
    """An incremental reader for one log, starting at a byte offset.

    If output was removed before it was read, because the log exceeded its limit, reading continues
    with the first line that was kept. If the file was truncated, reading continues at its
    beginning.
    """

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self.offset = start
        # The beginning of the last line can be long and grow in small steps.
        self._incomplete_line = bytearray()
        self._incomplete_line_end = start
        self._has_partial_line = False
        # The part of the incomplete line that contains no progress bar.
        self._searched_bytes = 0
        self.read_at: float | None = None
        """The time at which the latest output was written, in seconds since the epoch."""

    def read_blocks(self, end: int | None = None) -> Iterator[bytes]:
        """Yield the bytes that were added since the previous call, in blocks of limited size.

        If ``end`` is given, read only up to this byte offset. `offset` is the offset after the
        block that was yielded last.
        """
        try:
            file = self.path.open("rb", buffering=0)
        except FileNotFoundError:
            return
        with file:
            if os.fstat(file.fileno()).st_size < self.offset:
                self.offset = 0
            while end is None or self.offset < end:
                size = _BLOCK_BYTES if end is None else min(_BLOCK_BYTES, end - self.offset)
                file.seek(self.offset)
                block = file.read(size)
                # The supervisor may have removed output while the block was read, so this check
                # must come after the read.
                first = first_kept_offset(self.path)
                if first > self.offset:
                    block = block[first - self.offset :]
                    self.offset = first
                    if not block:
                        continue
                if not block:
                    return
                self.offset += len(block)
                yield block

    def read_new(self, end: int | None = None, *, partial: bool = False) -> Iterator[str]:
        """Yield the complete lines that were added since the previous call, as texts of one or more
        lines with their newlines. If ``end`` is given, read only up to this byte offset.

        A line that is longer than `MAX_LINE_BYTES` is yielded in parts, of which only the last one
        ends with a newline. With ``partial``, so is a line that contains a progress bar, while it
        is written; see `_has_progress`.
        """
        for block in self.read_blocks(end):
            block_start = self.offset - len(block)
            if block_start < self._incomplete_line_end:
                # The file was truncated, so the incomplete line will not be completed.
                yield from self._end_line()
            elif block_start > self._incomplete_line_end:
                # The rest of the incomplete line was removed before it was read.
                self._begin_line(b"")
            self._incomplete_line_end = self.offset
            end_of_lines = block.rfind(b"\n") + 1
            if end_of_lines:
                lines = self._incomplete_line + block[:end_of_lines]
                self._begin_line(block[end_of_lines:])
                self._has_partial_line = False
                yield log_text.decode(lines)
            else:
                self._incomplete_line += block
            is_long = len(self._incomplete_line) >= MAX_LINE_BYTES
            if is_long or (partial and self._has_progress()):
                yield from self._read_part()

    def read_incomplete_line(self) -> list[str]:
        """Return a list that contains the incomplete last line, or an empty list if there is none.

        Call this method only when the process will write no more output.
        """
        line = self._begin_line(b"")
        return [log_text.decode(line)] if line else []

    def _begin_line(self, beginning: bytes) -> bytearray:
        """Replace the incomplete line, and return what it was."""
        line, self._incomplete_line = self._incomplete_line, bytearray(beginning)
        self._searched_bytes = 0
        return line

    def _end_line(self) -> list[str]:
        """Return the incomplete line with a newline, or an empty list if there is no such line."""
        has_partial_line, self._has_partial_line = self._has_partial_line, False
        rest = self.read_incomplete_line()
        return [f"{text}\n" for text in rest or [""]] if rest or has_partial_line else []

    def _has_progress(self) -> bool:
        """Return whether the incomplete line contains a progress bar, or continues a part.

        A program that shows a progress bar writes a carriage return before or after each version of
        the bar. A single carriage return at the end can also be the first half of a line break.
        """
        if self._has_partial_line:
            return True
        end = max(0, len(self._incomplete_line) - 1)
        is_found = self._incomplete_line.find(b"\r", self._searched_bytes, end) >= 0
        self._searched_bytes = end
        return is_found

    def _read_part(self) -> list[str]:
        """Return the part of the incomplete line that has not been returned yet."""
        decoder = log_text.decoder()
        text = decoder.decode(self._incomplete_line)
        # The rest is the beginning of a character.
        self._begin_line(decoder.getstate()[0])
        self._has_partial_line = True
        return [text] if text else []


def read_merged(
    run: RunDirectory,
    processes: Sequence[str],
    *,
    since: float | None = None,
    tail: int | None = None,
    ignored: IgnoredLine | None = None,
    events: Iterable[ExperimentEvent] = (),
    ends: Mapping[str, int] | None = None,
) -> tuple[Iterator[LogBlock | ExperimentEvent], dict[str, LogTail]]:
    """Return the lines that are already in several logs, in chronological order, and readers for
    later lines.

    The readers are returned as a mapping from process names to `LogTail` objects. The caller may
    use them when all lines have been consumed. ``since``, ``tail`` and ``ignored`` have the same
    meaning as in `start_offset`. ``events`` are yielded between the lines, in chronological order.
    They must have been read before this call. ``ends`` contains the lengths up to which the
    logs are read, if these are not their current lengths.
    """
    tails = {
        name: LogTail(run.log(name), start_offset(run, name, since, tail, ignored))
        for name in processes
    }
    return _merge(run, tails, deque(events), ends or lengths(run, processes)), tails


def lengths(run: RunDirectory, processes: Iterable[str]) -> dict[str, int]:
    """Return the current lengths of logs in bytes."""
    return {name: _file_size(run.log(name)) for name in processes}


def _merge(
    run: RunDirectory,
    tails: Mapping[str, LogTail],
    events: deque[ExperimentEvent],
    ends: Mapping[str, int],
) -> Iterator[LogBlock | ExperimentEvent]:
    now = time.time()
    names = list(tails)
    timed_lengths = [
        _timed_lengths(run, name, index, ends[name], now) for index, name in enumerate(names)
    ]
    for at, index, length in heapq.merge(*timed_lengths):
        # The length of a log is recorded before the exit of its process.
        while events and events[0].at + _TIME_PRECISION_SECONDS <= at:
            yield events.popleft()
        name = names[index]
        if length > tails[name].offset:
            tails[name].read_at = at
            yield from _blocks(name, tails[name].read_new(length), at)
    yield from events


def _timed_lengths(
    run: RunDirectory, process: str, index: int, end: int, now: float
) -> Iterator[tuple[float, int, int]]:
    """Yield ``(time, index, length)`` for each recorded length of a log, up to the length ``end``
    that the log has ``now``.
    """
    # The clock can be set back, but the lines of one log must stay in order.
    latest = 0.0
    for at, length in log_times(run, process):
        latest = max(latest, at)
        yield latest, index, min(length, end)
        if length >= end:
            return
    yield max(latest, now), index, end


def follow(
    run: RunDirectory,
    tails: dict[str, LogTail],
    have_ended: Callable[[], bool],
    *,
    check_every: float = STATUS_CHECK_SECONDS,
    read_events: Callable[[], Iterable[ExperimentEvent]] = tuple,
    exited: Iterable[str] = (),
    find_new: Callable[[], Mapping[str, LogTail]] = dict,
) -> Iterator[LogBlock | ExperimentEvent]:
    """Yield log lines as they are written, until all processes have exited.

    ``have_ended`` returns whether they have exited. It is called when the event log grows and,
    while no log grows, at least every ``check_every`` seconds. ``read_events`` returns the new
    events, which are yielded between the lines. All lines of a process come before its exit, and
    those that it writes after it was started again come after its start. ``exited`` contains the
    processes that had exited before the first of these events. ``find_new`` returns readers for the
    logs of processes that were added since the previous call. They are added to ``tails``.

    A process can write before its start is recorded. Output that follows an exit is therefore held
    until the start is recorded, but for at most ``check_every`` seconds, because it can also come
    from a child of the process.
    """
    is_over = have_ended()
    grown: Collection[str] = tails.keys()
    reader = _FollowReader(run, tails, exited, hold_seconds=check_every)
    paths = {name: log.path for name, log in tails.items()}
    paths[_EVENTS_KEY] = run.events
    with growing(paths, remote=run.is_remote()) as wait:
        while True:
            new = find_new()
            if new:
                tails.update(new)
                paths.update({name: log.path for name, log in new.items()})
                grown = {*grown, *new}
            # The lengths must be read before the events: output of a later execution that is within
            # these lengths comes after an exit that is among the events.
            ends = lengths(run, {*reader.held, *grown} - {_EVENTS_KEY})
            events = list(read_events())
            yield from reader.read(ends, events, is_over=is_over)
            if is_over:
                break
            grown = wait(min(check_every, reader.seconds_until_release()))
            # The check reads the status of every process and is therefore too slow to run for each
            # line.
            if _EVENTS_KEY in grown or not grown:
                is_over = have_ended()
                if is_over:
                    # Processes may have written output between the last read and their exit.
                    grown = tails.keys()
    yield from incomplete_lines(tails)


class _FollowReader:
    """A reader that puts new lines and new events in order.

    ``held`` contains the processes whose output is held until their start is recorded, with the
    times at which the output was found, on the monotonic clock.
    """

    def __init__(
        self,
        run: RunDirectory,
        tails: Mapping[str, LogTail],
        exited: Iterable[str],
        *,
        hold_seconds: float,
    ) -> None:
        self._run = run
        self._tails = tails
        self._exited = set(exited)
        self._hold_seconds = hold_seconds
        self.held: dict[str, float] = {}

    def seconds_until_release(self) -> float:
        """Return after how many seconds output that is held must be read, or infinity."""
        if not self.held:
            return math.inf
        return max(0.0, min(self.held.values()) + self._hold_seconds - time.monotonic())

    def read(
        self, ends: Mapping[str, int], events: Sequence[ExperimentEvent], *, is_over: bool
    ) -> Iterator[LogBlock | ExperimentEvent]:
        """Yield the new events, and the lines up to the offsets ``ends``. If the processes have
        exited for good, no output is held.
        """
        exits = {event.process for event in events if event.kind in EXIT_KINDS}
        for name, end in ends.items():
            if name not in exits and name not in self._exited:
                yield from self._read_to(name, end)
        for event in events:
            if event.process is not None and event.process in self._tails:
                yield from self._read_before(event, event.process)
            yield event
        for name, end in ends.items():
            if is_over or not self._is_held(name, end):
                yield from self._read_to(name, end)

    def _read_before(self, event: ExperimentEvent, name: str) -> Iterator[LogBlock]:
        """Yield the lines of a process that were written before one of its events, if the event is
        an exit.
        """
        if event.kind in EXIT_KINDS:
            log = self._tails[name]
            end = _length_at(self._run, name, event.at)
            yield from self._read_to(name, end)
            # On some file systems, this machine reads what another machine has written with the old
            # length for about a second.
            deadline = time.monotonic() + REMOTE_PATIENCE_SECONDS
            while log.offset < end and self._run.is_remote() and time.monotonic() < deadline:
                time.sleep(REMOTE_POLL_SECONDS)
                yield from self._read_to(name, end)
            yield from _blocks(name, log.read_incomplete_line(), log.read_at)
            self._exited.add(name)
        elif event.kind is EventKind.STARTED:
            self._exited.discard(name)

    def _is_held(self, name: str, end: int) -> bool:
        if name not in self._exited or end <= self._tails[name].offset:
            self.held.pop(name, None)
            return False
        now = time.monotonic()
        if now < self.held.setdefault(name, now) + self._hold_seconds:
            return True
        del self.held[name]
        return False

    def _read_to(self, name: str, end: int) -> Iterator[LogBlock]:
        log = self._tails[name]
        if end == log.offset:
            return
        now = time.time()
        offset = log.offset
        yield from _blocks(name, log.read_new(end, partial=True), now)
        log.read_at = log.read_at if log.offset == offset else now


def _length_at(run: RunDirectory, process: str, at: float) -> int:
    """Return the last recorded length of a log at the time ``at``.

    The supervisor records the length just before it records an exit.
    """
    latest = at + _TIME_PRECISION_SECONDS
    return max((length for time, length in log_times(run, process) if time < latest), default=0)


def incomplete_lines(tails: Mapping[str, LogTail]) -> Iterator[LogBlock]:
    """Yield the incomplete last lines of processes that will write no more output."""
    for name, log in tails.items():
        yield from _blocks(name, log.read_incomplete_line(), log.read_at)


def _blocks(process: str, texts: Iterable[str], at: float | None) -> Iterator[LogBlock]:
    return (LogBlock(process, text, at) for text in texts)


@contextlib.contextmanager
def growing(
    paths: Mapping[str, Path], *, remote: bool = False
) -> Iterator[Callable[[float], set[str]]]:
    """Yield a function that waits until at least one file has grown, and returns the keys of the
    files that have grown.

    The function's argument is a timeout in seconds. If no file grows within this time, the function
    returns an empty set. Files can be added to ``paths`` between two calls. ``remote`` means that
    other machines write the files. In this case, the files are polled, because inotify does not
    report what other machines write.
    """
    if remote:
        yield _make_polling_wait(paths, REMOTE_POLL_SECONDS)
        return
    try:
        from symphony.supervised.read.inotify import FileWatcher

        watcher = FileWatcher()
    except OSError:
        # This system has no inotify, or the user's limit on inotify instances has been reached.
        yield _make_polling_wait(paths, POLL_SECONDS)
        return
    try:
        yield _make_watching_wait(watcher, paths)
    finally:
        watcher.close()


def _make_watching_wait(
    watcher: FileWatcher, paths: Mapping[str, Path]
) -> Callable[[float], set[str]]:
    known: set[str] = set()
    unwatched: dict[str, Path] = {}
    sizes: dict[str, int] = {}

    def wait(timeout: float) -> set[str]:
        grown: set[str] = set()
        if len(known) < len(paths):
            unwatched.update({key: path for key, path in paths.items() if key not in known})
            known.update(paths)
        for key, path in list(unwatched.items()):
            try:
                watcher.add(key, path)
                del unwatched[key]
            except OSError:
                # The file does not exist yet, or the user's limit on watches has been reached. The
                # file is polled instead.
                timeout = min(timeout, POLL_SECONDS)
            # A watch does not report output that was written after the last read but before the
            # watch was created.
            size = _file_size(path)
            if size != sizes.get(key):
                sizes[key] = size
                grown.add(key)
                timeout = 0.0
        changed = watcher.changed(timeout)
        for key in changed:
            if not watcher.is_watching(key):
                # Another file can have the path now, and the same size.
                unwatched[key] = paths[key]
                sizes.pop(key, None)
        return grown | changed

    return wait


def _make_polling_wait(paths: Mapping[str, Path], interval: float) -> Callable[[float], set[str]]:
    sizes: dict[str, int] = {}

    def wait(timeout: float) -> set[str]:
        deadline = time.monotonic() + timeout
        while True:
            grown = {key for key, path in paths.items() if sizes.get(key) != _file_size(path)}
            if grown or time.monotonic() >= deadline:
                sizes.update({key: _file_size(paths[key]) for key in grown})
                return grown
            time.sleep(min(interval, max(0.0, deadline - time.monotonic())))

    return wait


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
