"""Reading process logs: in full, from the end, from a given time, and while they grow.

A process writes directly to its log file, so the file contains no timestamps. While a log grows,
the supervisor records the time and the length of the log at most once a second; see
`symphony.host.supervisor.log_times`. All output up to a recorded length was written before the
recorded time. ``since`` and the order of lines from different processes are therefore accurate to
about one second.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from symphony.host.run.directory import RunDirectory
from symphony.status import LogLine

if TYPE_CHECKING:
    from symphony.host.inotify import FileWatcher

POLL_SECONDS = 0.02
STATUS_CHECK_SECONDS = 0.5
_BLOCK_BYTES = 1 << 18

# The key under which `follow` watches the event log. It cannot clash with a process name, because a
# process name is never empty.
_EVENTS_KEY = ""

TimedLength = tuple[float, int]


def log_times(run: RunDirectory, process: str) -> list[TimedLength]:
    """Return the ``(time, length)`` pairs recorded for a process's log, in chronological order.

    Times are in seconds since the epoch, and lengths are in bytes. Lines that are not valid are
    skipped. The last line can be incomplete while the supervisor writes it.
    """
    try:
        content = run.log_times(process).read_bytes()
    except FileNotFoundError:
        return []
    pairs = (_parse_timed_length(line) for line in content.splitlines())
    return [pair for pair in pairs if pair is not None]


def _parse_timed_length(line: bytes) -> TimedLength | None:
    """Return the time and the length in a line, or None if the line is not valid.

    If the disk was full, a line in the middle can be incomplete.
    """
    try:
        at, length = line.split()
        return float(at), int(length)
    except ValueError:
        return None


def start_offset(run: RunDirectory, process: str, since: float | None, tail: int | None) -> int:
    """Return the byte offset at which to start reading a process's log.

    ``since`` is in seconds since the epoch, and ``tail`` is a number of lines. If both are given,
    return the larger of the two offsets.
    """
    log = run.log(process)
    offset = 0
    if since is not None:
        lengths = [length for at, length in log_times(run, process) if at <= since]
        offset = line_start(log, max(lengths, default=0))
    if tail is not None:
        offset = max(offset, tail_start(log, tail))
    return offset


def line_start(path: Path, offset: int) -> int:
    """Return the byte offset at which the line that contains the byte at ``offset`` starts.

    This function is needed because a recorded length can fall in the middle of a line.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return offset
    with file:
        while offset > 0:
            size = min(_BLOCK_BYTES, offset)
            file.seek(offset - size)
            block = file.read(size)
            if b"\n" in block:
                return offset - size + block.rindex(b"\n") + 1
            offset -= size
    return 0


def tail_start(path: Path, lines: int) -> int:
    """Return the byte offset at which the last ``lines`` lines of a file start.

    An incomplete last line counts as a line.
    """
    if lines <= 0:
        return path.stat().st_size if path.exists() else 0
    try:
        file = path.open("rb")
    except FileNotFoundError:
        return 0
    with file:
        end = position = file.seek(0, os.SEEK_END)
        wanted = lines
        while position > 0:
            size = min(_BLOCK_BYTES, position)
            position -= size
            file.seek(position)
            block = file.read(size)
            is_last_block = position + size == end
            if is_last_block and block.endswith(b"\n"):
                # This newline terminates the last line and does not separate two lines.
                wanted += 1
            newlines = block.count(b"\n")
            if newlines >= wanted:
                return position + _nth_last_newline(block, wanted) + 1
            wanted -= newlines
    return 0


def _nth_last_newline(block: bytes, count: int) -> int:
    index = len(block)
    for _ in range(count):
        index = block.rindex(b"\n", 0, index)
    return index


def read(
    run: RunDirectory, process: str, *, since: float | None = None, tail: int | None = None
) -> str:
    """Return a process's output as a string. Bytes that are not valid UTF-8 are replaced with
    U+FFFD.

    ``since`` and ``tail`` have the same meaning as in `start_offset`. If the process has no log
    yet, return an empty string.
    """
    try:
        file = run.log(process).open("rb")
    except FileNotFoundError:
        return ""
    with file:
        file.seek(start_offset(run, process, since, tail))
        return file.read().decode(errors="replace")


class LogTail:
    """An incremental reader for the lines of one log, starting at a byte offset."""

    def __init__(self, path: Path, start: int = 0) -> None:
        self.path = path
        self.offset = start
        self._incomplete_line = b""

    def read_new(self, end: int | None = None) -> list[str]:
        """Return the complete lines that were added since the previous call. If ``end`` is given,
        read only up to this byte offset.
        """
        try:
            file = self.path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            file.seek(self.offset)
            data = file.read(-1 if end is None else max(0, end - self.offset))
        self.offset += len(data)
        complete, newline, rest = data.rpartition(b"\n")
        if not newline:
            self._incomplete_line += data
            return []
        text = (self._incomplete_line + complete).decode(errors="replace")
        self._incomplete_line = rest
        return text.split("\n")

    def read_incomplete_line(self) -> list[str]:
        """Return a list that contains the incomplete last line, or an empty list if there is none.

        Call this method only when the process will write no more output.
        """
        line, self._incomplete_line = self._incomplete_line, b""
        return [line.decode(errors="replace")] if line else []


def read_merged(
    run: RunDirectory,
    processes: Sequence[str],
    *,
    since: float | None = None,
    tail: int | None = None,
) -> tuple[list[LogLine], dict[str, LogTail]]:
    """Return the lines of several logs in chronological order, and readers for later lines.

    The readers are returned as a mapping from process names to `LogTail` objects.
    """
    tails = {
        name: LogTail(run.log(name), start_offset(run, name, since, tail)) for name in processes
    }
    pieces: list[tuple[float, int, list[LogLine]]] = []
    for index, (name, log) in enumerate(tails.items()):
        # The clock can be set back, but the lines of one log must stay in order.
        latest = 0.0
        for at, length in [*log_times(run, name), (time.time(), _file_size(log.path))]:
            latest = max(latest, at)
            texts = log.read_new(length) if length > log.offset else []
            pieces.append((latest, index, [LogLine(process=name, text=text) for text in texts]))
    pieces.sort(key=lambda piece: piece[:2])
    return [line for _, _, lines in pieces for line in lines], tails


def follow(
    run: RunDirectory,
    tails: Mapping[str, LogTail],
    have_ended: Callable[[], bool],
    *,
    check_every: float = STATUS_CHECK_SECONDS,
) -> Iterator[LogLine]:
    """Yield log lines as they are written, until all processes have exited.

    ``have_ended`` returns whether they have exited. It is called when the event log grows and,
    while no log grows, at least every ``check_every`` seconds.
    """
    is_over = have_ended()
    grown: Collection[str] = tails.keys()
    paths = {name: log.path for name, log in tails.items()}
    with growing({**paths, _EVENTS_KEY: run.events}) as wait:
        while True:
            for name, log in tails.items():
                if name in grown:
                    yield from _log_lines(name, log.read_new())
            if is_over:
                break
            grown = wait(check_every)
            # The check reads the status of every process and is therefore too slow to run for each
            # line.
            if _EVENTS_KEY in grown or not grown:
                is_over = have_ended()
                if is_over:
                    # Processes may have written output between the last read and their exit.
                    grown = tails.keys()
    for name, log in tails.items():
        yield from _log_lines(name, log.read_incomplete_line())


def _log_lines(process: str, texts: list[str]) -> Iterator[LogLine]:
    return (LogLine(process=process, text=text) for text in texts)


@contextlib.contextmanager
def growing(paths: Mapping[str, Path]) -> Iterator[Callable[[float], set[str]]]:
    """Yield a function that waits until at least one file has grown, and returns the keys of the
    files that have grown.

    The function's argument is a timeout in seconds. If no file grows within this time, the function
    returns an empty set.
    """
    try:
        from symphony.host.inotify import FileWatcher

        watcher = FileWatcher()
    except OSError:
        # This system has no inotify, or the user's limit on inotify instances has been reached.
        yield _make_polling_wait(paths)
        return
    try:
        yield _make_watching_wait(watcher, paths)
    finally:
        watcher.close()


def _make_watching_wait(
    watcher: FileWatcher, paths: Mapping[str, Path]
) -> Callable[[float], set[str]]:
    unwatched = dict(paths)
    sizes: dict[str, int] = {}

    def wait(timeout: float) -> set[str]:
        grown: set[str] = set()
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
        unwatched.update({key: paths[key] for key in changed})
        return grown | changed

    return wait


def _make_polling_wait(paths: Mapping[str, Path]) -> Callable[[float], set[str]]:
    sizes: dict[str, int] = {}

    def wait(timeout: float) -> set[str]:
        deadline = time.monotonic() + timeout
        while True:
            grown = {key for key, path in paths.items() if sizes.get(key) != _file_size(path)}
            if grown or time.monotonic() >= deadline:
                sizes.update({key: _file_size(paths[key]) for key in grown})
                return grown
            time.sleep(POLL_SECONDS)

    return wait


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0
