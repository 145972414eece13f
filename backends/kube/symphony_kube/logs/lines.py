"""Parse logs from the API in which each line begins with a timestamp. Pure.

A timestamp has the form ``2024-01-01T00:00:00.000000000Z`` and is followed by a space. Because
their width is fixed, UTC timestamps can be compared as bytes. The container runtime splits a long
line into pieces of 16 KiB, and kubelets before version 1.27 put a timestamp before each piece.
"""

from __future__ import annotations

import functools
import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

# The width of a UTC timestamp including the space after it, and the position of its time zone.
_TIMESTAMP_WIDTH, _ZONE_POSITION = 31, 29
# The size of the pieces into which a long line is split.
PIECE_BYTES = 1 << 14
_TIMESTAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) ")
# A kubelet that no longer has a log returns one of these messages as if it were the log.
_MISSING_LOG = re.compile(
    rb"(?:unable to retrieve container logs for|failed to try resolving symlinks in path) [^\n]*\n?"
)
MAX_MISSING_LOG_BYTES = 1000
# How many lines are remembered, and how many bytes of each line. These bytes contain the timestamp
# and the beginning of the line.
_REMEMBERED_LINES, _REMEMBERED_BYTES = 1000, 96


class LineAssembler:
    """A buffer that assembles complete lines from chunks of data."""

    def __init__(self) -> None:
        self._incomplete: list[bytes] = []

    def add(self, chunk: bytes) -> list[bytes]:
        """Return the lines that this chunk completes."""
        first, newline, after = chunk.partition(b"\n")
        if not newline:
            self._incomplete.append(chunk)
            return []
        *complete, rest = after.split(b"\n")
        lines = [b"".join((*self._incomplete, first)), *complete]
        self._incomplete = [rest] if rest else []
        return lines

    def flush(self) -> list[bytes]:
        """Return the data after the last newline as a list of one line, or an empty list if there
        is none.
        """
        rest, self._incomplete = b"".join(self._incomplete), []
        return [rest] if rest and not is_missing_log(rest) else []


def is_missing_log(data: bytes) -> bool:
    """Return whether ``data`` is a kubelet's message that it no longer has the log."""
    return len(data) < MAX_MISSING_LOG_BYTES and _MISSING_LOG.fullmatch(data) is not None


def line_time(line: bytes) -> bytes:
    """Return the time at which a line was written, as bytes that sort chronologically.

    Return ``b""`` if the line has no timestamp.
    """
    if line[_ZONE_POSITION : _ZONE_POSITION + 1] == b"Z":
        return line[:_ZONE_POSITION]
    match = _TIMESTAMP.match(line)
    if match is None:
        return b""
    text = match.group().decode().rstrip()
    date_and_time, fraction, zone = text[:19], text[19:29], text[29:]
    moment = datetime.fromisoformat(date_and_time + zone).astimezone(timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}".encode()


def line_seconds(line: bytes) -> float | None:
    """Return the time at which a line was written, in seconds since the epoch.

    Return None if the line has no timestamp.
    """
    time = line_time(line)
    if not time:
        return None
    return _second(time[:19]) + float(time[19:])


@functools.lru_cache(maxsize=16)
def _second(text: bytes) -> float:
    """Return a time in whole seconds as seconds since the epoch.

    The result is cached, because many lines are written in the same second.
    """
    moment = datetime.fromisoformat(text.decode())
    return moment.replace(tzinfo=timezone.utc).timestamp()


def to_line_time(time: float) -> bytes:
    """Convert ``time``, in seconds since the epoch, to the format of `line_time`."""
    seconds, microseconds = divmod(round(time * 1_000_000), 1_000_000)
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{microseconds:06d}000".encode()


def to_since_time(time: bytes, *, earlier_seconds: int = 0) -> str:
    """Convert a result of `line_time` to a start time for the API.

    The start time is ``earlier_seconds`` seconds before ``time``, rounded down to whole seconds.
    """
    moment = datetime.fromisoformat(time[:19].decode()).replace(tzinfo=timezone.utc)
    moment = datetime.fromtimestamp(moment.timestamp() - earlier_seconds, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def line_content(line: bytes) -> bytes:
    """Return a line without its timestamp.

    If a long line was split into pieces, the timestamp before each piece is removed.
    """
    if line[_ZONE_POSITION : _ZONE_POSITION + 2] == b"Z ":
        start = _TIMESTAMP_WIDTH
    else:
        start = _end_of_timestamp(line, 0)
    if len(line) - start <= PIECE_BYTES or not _end_of_timestamp(line, start + PIECE_BYTES):
        return line[start:]
    pieces = []
    while True:
        end = start + PIECE_BYTES
        pieces.append(line[start:end])
        start = _end_of_timestamp(line, end)
        if not start:
            pieces.append(line[end:])
            return b"".join(pieces)


def _end_of_timestamp(line: bytes, position: int) -> int:
    """Return the position after the timestamp at ``position``, or 0 if there is no timestamp."""
    match = _TIMESTAMP.match(line, position)
    return match.end() if match else 0


def lines_since(lines: Iterable[bytes], time: bytes) -> Iterator[bytes]:
    """Return the lines that were written at ``time`` or later."""
    return (line for line in lines if line_time(line) >= time)


class LogPosition:
    """The position up to which a log has been read.

    Lines that were written before ``floor`` are ignored. The last lines that were read are
    remembered.

    The API accepts only whole seconds as a start time, and may therefore return some lines again.
    Repeated lines are recognized by their nanosecond timestamps and their first bytes. Some of the
    remembered lines may never be returned again, because the log of a restarted container does not
    contain the lines from before the restart.
    """

    def __init__(self, floor: bytes = b"") -> None:
        self.floor = floor
        self._lines: deque[bytes] = deque(maxlen=_REMEMBERED_LINES)

    def remember(self, lines: Iterable[bytes]) -> None:
        """Remember lines that have been read."""
        self._lines.extend(line[:_REMEMBERED_BYTES] for line in lines)

    def since_time(self, *, previous: bool = False) -> str | None:
        """Return the time, in the API's format, from which to continue reading.

        None means the beginning of the log. With ``previous``, the log is that of the previous
        execution, of which the lines before those of the next one may not have been read.
        """
        if previous:
            start = self._oldest()
            return to_since_time(start) if start else None
        last = max((line_time(line) for line in self._lines), default=b"")
        if last:
            return to_since_time(last, earlier_seconds=1)
        return to_since_time(self.floor) if self.floor else None

    def _oldest(self) -> bytes:
        """Return the time before which all lines have been read or are ignored, or ``b""``."""
        if len(self._lines) < _REMEMBERED_LINES:
            return self.floor
        return max(self.floor, min(line_time(line) for line in self._lines))

    def new_line_filter(self) -> NewLineFilter:
        """Return a filter for the lines that the API returns if reading continues from
        `since_time`.
        """
        return NewLineFilter(Counter(self._lines), self._oldest())


class NewLineFilter:
    """A filter that removes repeated lines, and lines that were written before ``oldest``."""

    def __init__(self, known: Counter[bytes], oldest: bytes) -> None:
        self._known = known
        self._oldest = oldest
        self._latest = max(known, key=line_time, default=b"")

    @property
    def has_missed_latest(self) -> bool:
        """True if the latest of the known lines has not been repeated.

        If new lines have followed, they are from another log: that of the next execution.
        """
        return self._latest in self._known

    def filter(self, lines: list[bytes]) -> list[bytes]:
        """Return those of ``lines`` that are new."""
        if not self._known and not self._oldest:
            return lines
        return [line for line in lines if self._is_new(line)]

    def _is_new(self, line: bytes) -> bool:
        start = line[:_REMEMBERED_BYTES]
        if self._known.get(start):
            self._known[start] -= 1
            if not self._known[start]:
                del self._known[start]
            return False
        return not self._oldest or line_time(line) >= self._oldest
