"""The record of one history: the bytes that the product would have written, in memory."""

from __future__ import annotations

import functools

from symphony.plan.state import Event, RunState, checkpoint
from symphony.supervised.record.event_file import decode, encode

# How many lines are kept as events, because most lines are read several times.
_REMEMBERED_LINES = 5000


class Record:
    """The lines of an event log.

    If ``limit`` is not None, the lines are replaced by a checkpoint and the events after it each
    time that as many lines were added, as `symphony.supervised.supervisor.event_log` does.
    """

    __slots__ = ("_checkpoint", "_events", "_folded", "_limit", "_lines", "_torn")

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._lines: list[bytes] = []
        # The events after these lines. They are encoded when somebody reads the record.
        self._events: list[Event] = []
        self._torn = b""
        self._folded = 0
        # A checkpoint, and the number of lines before it. It replaces them later.
        self._checkpoint: tuple[bytes, int] | None = None

    @property
    def is_limited(self) -> bool:
        """True if checkpoints replace the lines."""
        return self._limit is not None

    def append(self, event: Event, state: RunState) -> None:
        """Write an event. ``state`` is the state after it."""
        if self._torn:
            self._end_torn_line()
        self._events.append(event)
        if self._limit is not None:
            self._limit_size(self._limit, state, event["at"])

    def tear(self, event: Event) -> None:
        """Write only the first half of an event's line."""
        self._encode()
        if self._torn:
            self._end_torn_line()
        line = encode(event)
        self._torn = line[: len(line) // 2]

    def read(self) -> list[Event]:
        """Return the events as a new supervisor reads them."""
        self._encode()
        lines = b"".join(self._lines).split(b"\n")
        return [event for line in lines for event in _decoded(line)]

    def _encode(self) -> None:
        self._lines += map(encode, self._events)
        self._events.clear()

    def _end_torn_line(self) -> None:
        """Write the end of a line that a killed supervisor could not complete."""
        self._lines.append(self._torn + b"\n")
        self._torn = b""

    def _limit_size(self, limit: int, state: RunState, at: float) -> None:
        count = 0 if self._checkpoint is None else self._checkpoint[1]
        if len(self._lines) + len(self._events) - count < limit:
            return
        self._encode()
        if self._checkpoint is not None:
            line, count = self._checkpoint
            self._lines = [line, *self._lines[count:]]
        folded = self._folded + sum(map(len, self._lines))
        self._checkpoint = encode(checkpoint(state, folded, at)), len(self._lines)


@functools.lru_cache(_REMEMBERED_LINES)
def _decoded(line: bytes) -> list[Event]:
    """Return the events of a line, which nobody changes."""
    return decode(line)
