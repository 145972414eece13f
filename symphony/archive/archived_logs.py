"""The logs in a record whose processes no longer write.

Each process has the file PROCESS.log with its output. Each line of PROCESS.when is a time in
seconds since the epoch and a length in bytes: the output up to this length was written before this
time.
"""

from __future__ import annotations

import contextlib
import heapq
import mmap
from collections.abc import Iterator, Sequence
from pathlib import Path

from symphony import log_text
from symphony.status import LogLine

LOG_SUFFIX, TIMES_SUFFIX = ".log", ".when"
_BLOCK_BYTES = 1 << 18

TimedLength = tuple[float, int]


def log_path(directory: Path, process: str) -> Path:
    """Return the path of a process's log in the directory with the logs."""
    return directory / f"{process}{LOG_SUFFIX}"


def iter_text(
    directory: Path, process: str, *, since: float | None = None, tail: int | None = None
) -> Iterator[str]:
    """Yield a process's output in pieces of limited size.

    ``since`` is a time in seconds since the epoch, and ``tail`` a number of lines. The text is that
    of `symphony.log_text`. A process without a log has no output.
    """
    decoder = log_text.decoder()
    with _opened(log_path(directory, process)) as data:
        position = _start(data, _times(directory, process), since, tail)
        while position < len(data):
            yield decoder.decode(data[position : position + _BLOCK_BYTES])
            position += _BLOCK_BYTES
    yield decoder.decode(b"", final=True)


def iter_lines(
    directory: Path,
    processes: Sequence[str],
    *,
    since: float | None = None,
    tail: int | None = None,
) -> Iterator[LogLine]:
    """Yield the lines of several processes in the order in which they were written.

    ``since`` and ``tail`` limit the lines of each process as in `iter_text`.
    """
    parts = [
        _timed_parts(directory, process, number, since, tail)
        for number, process in enumerate(processes)
    ]
    for _, number, part in heapq.merge(*parts, key=lambda item: item[:2]):
        text = log_text.decode(part)
        for line in text.removesuffix("\n").split("\n"):
            yield LogLine(process=processes[number], text=line)


def _timed_parts(
    directory: Path, process: str, number: int, since: float | None, tail: int | None
) -> Iterator[tuple[float, int, bytes]]:
    """Yield the parts of a log with the times before which they were written, and ``number``."""
    times = _times(directory, process)
    with _opened(log_path(directory, process)) as data:
        position = _start(data, times, since, tail)
        latest = 0.0
        for at, length in [*times, (float("inf"), len(data))]:
            # The clock can be set back, but the lines of one log stay in order.
            latest = max(latest, at)
            if length > position:
                yield latest, number, data[position:length]
                position = length


def _times(directory: Path, process: str) -> list[TimedLength]:
    """Return the recorded times and lengths. Damaged lines are omitted."""
    try:
        text = (directory / f"{process}{TIMES_SUFFIX}").read_text("ascii", errors="replace")
    except FileNotFoundError:
        return []
    times = []
    for line in text.splitlines():
        with contextlib.suppress(ValueError):
            at, length = line.split()
            times.append((float(at), int(length)))
    return times


def _start(
    data: bytes | mmap.mmap, times: Sequence[TimedLength], since: float | None, tail: int | None
) -> int:
    """Return the position at which to start reading a log."""
    start = 0
    if since is not None:
        start = max((length for at, length in times if at < since), default=0)
    if tail is not None:
        start = max(start, _tail_start(data, tail))
    return min(start, len(data))


def _tail_start(data: bytes | mmap.mmap, lines: int) -> int:
    if lines <= 0:
        return len(data)
    position = len(data) - (data[-1:] == b"\n")
    for _ in range(lines):
        position = data.rfind(b"\n", 0, position)
        if position < 0:
            return 0
    return position + 1


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[bytes | mmap.mmap]:
    """Open a file as a sequence of bytes that is not read into memory at once.

    A missing file is empty.
    """
    try:
        file = path.open("rb")
    except FileNotFoundError:
        yield b""
        return
    with file:
        try:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except ValueError:  # An empty file cannot be mapped.
            yield b""
            return
        with data:
            yield data
