"""What the API answers when it is asked for a log with times: each line after its time. Pure.

A time is `2024-01-01T00:00:00.000000000Z` and a space, of fixed width, so that times compare as bytes do. The
container runtime writes long lines in pieces of 16 KiB, and kubelets before 1.27 put a time before each piece.
"""

from __future__ import annotations

import re
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from datetime import datetime, timezone

# Times in front of lines: their width with and without the space, and where the zone stands.
WIDTH, ZONE = 31, 29
PIECE = 1 << 14
_TIME = re.compile(rb"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}(?:Z|[+-]\d\d:\d\d) ")
# What a kubelet answers for a log that it has no longer, in the place of the log.
_NO_LOG = re.compile(
    rb"(?:unable to retrieve container logs for|failed to try resolving symlinks in path) [^\n]*\n?"
)
# How far back lines are remembered, and how much of each: more than its time.
_KEPT, _ENOUGH = 1000, 96


class Pieces:
    """Puts lines together from what comes of them."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def add(self, chunk: bytes) -> list[bytes]:
        """The lines that ``chunk`` brought to their end."""
        first, newline, after = chunk.partition(b"\n")
        if not newline:
            self._rest.append(chunk)
            return []
        *whole, rest = after.split(b"\n")
        lines = [b"".join((*self._rest, first)), *whole]
        self._rest = [rest] if rest else []
        return lines

    def last(self) -> list[bytes]:
        """What stands after the last newline."""
        rest, self._rest = b"".join(self._rest), []
        return [rest] if rest and not is_excuse(rest) else []


def is_excuse(data: bytes) -> bool:
    """Whether this is not a log but the words of a kubelet that has it no longer."""
    return len(data) < 1000 and _NO_LOG.fullmatch(data) is not None


def time_of(line: bytes) -> bytes:
    """When a line was written, as bytes that compare as times do."""
    if line[ZONE : ZONE + 1] == b"Z":
        return line[:ZONE]
    found = _TIME.match(line)
    if found is None:
        return b""
    text = found.group().decode().rstrip()
    moment = datetime.fromisoformat(text[:19] + text[29:]).astimezone(timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}{text[19:29]}".encode()


def stamp(at: float) -> bytes:
    """A time (seconds since the epoch) as `time_of` gives it."""
    whole, part = divmod(round(at * 1_000_000), 1_000_000)
    moment = datetime.fromtimestamp(whole, timezone.utc)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{part:06d}000".encode()


def seconds(time: bytes, back: int = 0) -> str:
    """A time as the API takes it, in whole seconds, ``back`` seconds earlier."""
    moment = (
        datetime.fromisoformat(time[:19].decode()).replace(tzinfo=timezone.utc).timestamp() - back
    )
    return f"{datetime.fromtimestamp(moment, timezone.utc):%Y-%m-%dT%H:%M:%SZ}"


def content(line: bytes) -> bytes:
    """A line without its time, and without those before the pieces of a long one."""
    start = WIDTH if line[ZONE : ZONE + 2] == b"Z " else _end_of_time(line, 0)
    if len(line) - start <= PIECE or not _end_of_time(line, start + PIECE):
        return line[start:]
    pieces = []
    while True:
        pieces.append(line[start : start + PIECE])
        after = start + PIECE
        start = _end_of_time(line, after)
        if not start:
            pieces.append(line[after:])
            return b"".join(pieces)


def _end_of_time(line: bytes, place: int) -> int:
    found = _TIME.match(line, place)
    return found.end() if found else 0


def newer(lines: Iterable[bytes], since: bytes) -> Iterator[bytes]:
    """The lines that were written at a time or after it."""
    return (line for line in lines if time_of(line) >= since)


class Seen:
    """The last lines that were read of a log, to go on reading after them.

    The API begins at whole seconds, so some lines come again. They are known by their time, in nanoseconds, and
    their beginning; the log of a container that was started anew has none of them. What is older than ``floor`` is
    not wanted.
    """

    def __init__(self, floor: bytes = b"") -> None:
        self.floor = floor
        self._lines: deque[bytes] = deque(maxlen=_KEPT)

    def note(self, lines: Iterable[bytes]) -> None:
        """Remember lines that were read."""
        self._lines.extend(line[:_ENOUGH] for line in lines)

    def where(self) -> str | None:
        """From when to read on, as the API takes it, with a second to spare; None for the beginning."""
        last = max(map(time_of, self._lines), default=b"")
        if last:
            return seconds(last, back=1)
        return seconds(self.floor) if self.floor else None

    def unseen(self) -> Unseen:
        """What tells new lines from those that come again, in what is read from `where` on."""
        full = len(self._lines) == _KEPT
        oldest = min(map(time_of, self._lines)) if full else b""
        return Unseen(Counter(self._lines), max(self.floor, oldest))


class Unseen:
    """Leaves out the lines that come again; those that are older than all that is remembered were read too."""

    def __init__(self, known: Counter[bytes], oldest: bytes) -> None:
        self._known = known
        self._oldest = oldest

    def of(self, lines: list[bytes]) -> list[bytes]:
        """The lines that are new."""
        return (
            [line for line in lines if self._is_new(line)] if self._known or self._oldest else lines
        )

    def _is_new(self, line: bytes) -> bool:
        start = line[:_ENOUGH]
        if self._known.get(start):
            self._known[start] -= 1
            if not self._known[start]:
                del self._known[start]
            return False
        return not self._oldest or time_of(line) >= self._oldest
