"""Parse the logs that the API returns with timestamps, in which each line follows its time. Pure.

A timestamp is `2024-01-01T00:00:00.000000000Z` and a space. Because the width is fixed, timestamps
can be compared as bytes. The container runtime splits a long line into pieces of 16 KiB, and
kubelets before 1.27 put a timestamp before each piece.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

# The width of a UTC timestamp including its space, and the position of the time zone.
_TIMESTAMP_WIDTH, _ZONE_POSITION = 31, 29
# The size of the pieces into which a long line is split.
PIECE_BYTES = 1 << 14
_TIMESTAMP = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) ")
# A kubelet that no longer has a log returns this message as the content of the log.
_MISSING_LOG = re.compile(
    rb"(?:unable to retrieve container logs for|failed to try resolving symlinks in path) [^\n]*\n?"
)
_MAX_MISSING_LOG_BYTES = 1000
# How many lines are remembered, and how many bytes of each line, which is more than its timestamp.
_REMEMBERED_LINES, _REMEMBERED_BYTES = 1000, 96


class LineAssembler:
    """Assembles lines from chunks."""

    def __init__(self) -> None:
        self._incomplete: list[bytes] = []

    def add(self, chunk: bytes) -> list[bytes]:
        """Return the lines that are complete with this chunk."""
        first, newline, after = chunk.partition(b"\n")
        if not newline:
            self._incomplete.append(chunk)
            return []
        *complete, rest = after.split(b"\n")
        lines = [b"".join((*self._incomplete, first)), *complete]
        self._incomplete = [rest] if rest else []
        return lines

    def flush(self) -> list[bytes]:
        """Return the data after the last newline as a line, or an empty list if there is no such
        data.
        """
        rest, self._incomplete = b"".join(self._incomplete), []
        return [rest] if rest and not is_missing_log(rest) else []


def is_missing_log(data: bytes) -> bool:
    """Return whether the data is the message from a kubelet that no longer has the log."""
    return len(data) < _MAX_MISSING_LOG_BYTES and _MISSING_LOG.fullmatch(data) is not None


def line_time(line: bytes) -> bytes:
    """Return when a line was written, as bytes that sort chronologically."""
    if line[_ZONE_POSITION : _ZONE_POSITION + 1] == b"Z":
        return line[:_ZONE_POSITION]
    match = _TIMESTAMP.match(line)
    if match is None:
        return b""
    text = match.group().decode().rstrip()
    date_and_time, fraction, zone = text[:19], text[19:29], text[29:]
    moment = datetime.fromisoformat(date_and_time + zone).astimezone(timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}{fraction}".encode()


def to_line_time(time: float) -> bytes:
    """Return a time in seconds since the epoch in the format of `line_time`."""
    seconds, microseconds = divmod(round(time * 1_000_000), 1_000_000)
    moment = datetime.fromtimestamp(seconds, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{microseconds:06d}000".encode()


def to_since_time(time: bytes, *, earlier_seconds: int = 0) -> str:
    """Return a line time as the API expects it: in whole seconds, moved back by
    ``earlier_seconds``.
    """
    moment = datetime.fromisoformat(time[:19].decode()).replace(tzinfo=timezone.utc)
    moment = datetime.fromtimestamp(moment.timestamp() - earlier_seconds, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def line_content(line: bytes) -> bytes:
    """Return a line without its timestamp and without the timestamps before the pieces of a long
    line.
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
    """How far a log was read: its last lines, and the time ``floor`` before which no line is
    wanted.

    The API accepts a start time in whole seconds and can therefore repeat some lines. Repeated
    lines are recognized by their timestamp in nanoseconds and their first bytes. The log of a
    restarted container does not repeat lines.
    """

    def __init__(self, floor: bytes = b"") -> None:
        self.floor = floor
        self._lines: deque[bytes] = deque(maxlen=_REMEMBERED_LINES)

    def remember(self, lines: Iterable[bytes]) -> None:
        """Remember lines that were read."""
        self._lines.extend(line[:_REMEMBERED_BYTES] for line in lines)

    def since_time(self) -> str | None:
        """Return the time at which to continue reading, as the API expects it, or None for the
        beginning.
        """
        last = max((line_time(line) for line in self._lines), default=b"")
        if last:
            return to_since_time(last, earlier_seconds=1)
        return to_since_time(self.floor) if self.floor else None

    def new_line_filter(self) -> NewLineFilter:
        """Return a filter for the lines that the API returns from `since_time` on."""
        oldest = b""
        if len(self._lines) == _REMEMBERED_LINES:
            oldest = min(line_time(line) for line in self._lines)
        return NewLineFilter(Counter(self._lines), max(self.floor, oldest))


class NewLineFilter:
    """Removes repeated lines, and lines that are older than all remembered lines."""

    def __init__(self, known: Counter[bytes], oldest: bytes) -> None:
        self._known = known
        self._oldest = oldest

    def filter(self, lines: list[bytes]) -> list[bytes]:
        """Return the new lines."""
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
