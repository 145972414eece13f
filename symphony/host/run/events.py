"""The event log of an experiment: appended to by its supervisor alone, folded into its status by everybody.

One JSON object a line, each with ``event`` and ``at`` (seconds since the epoch). A torn last line, which a
killed writer may leave, is not there yet.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO

from symphony.status import State

Event = Mapping[str, Any]


@dataclass(slots=True)
class Track:
    """What the events tell of one process. Times are seconds since the epoch.

    ``never_ready`` says that it was not ready in time and never had been, ``late`` that its latest run was not.
    """

    state: State = State.PENDING
    ready: bool = False
    was_ready: bool = False
    never_ready: bool = False
    late: bool = False
    exit_code: int | None = None
    reason: str = ""
    restarts: int = 0
    failures_in_row: int = 0
    started: float | None = None
    ended: float | None = None
    stopped: bool = False
    pid: int | None = None
    birth: float | None = None


@dataclass(slots=True)
class Run:
    """What the events tell of an experiment."""

    tracks: dict[str, Track]
    created: float | None = None
    stopping: bool = False
    finished: bool = False
    unseen: list[Event] = field(default_factory=list)


def fold(processes: Iterable[str], events: Iterable[Event]) -> Run:
    """The state of a run after ``events``."""
    run = Run(tracks={name: Track() for name in processes})
    for event in events:
        apply(run, event)
    return run


def apply(run: Run, event: Event) -> None:
    """Move ``run`` on by one event. An event of a kind that is not known changes nothing."""
    change = _CHANGES.get(event["event"])
    if change is None:
        run.unseen.append(event)
    elif "process" not in event:
        change(run, event)
    elif event["process"] in run.tracks:
        change(run.tracks[event["process"]], event)


def _launched(run: Run, event: Event) -> None:
    run.created = event["at"]


def _stopping(run: Run, _: Event) -> None:
    run.stopping = True


def _finished(run: Run, _: Event) -> None:
    run.finished = True


def _waiting(track: Track, event: Event) -> None:
    track.reason = event["reason"]


def _started(track: Track, event: Event) -> None:
    if track.started is not None:
        track.restarts += 1
    track.state, track.reason = State.RUNNING, ""
    track.started, track.ended, track.exit_code = event["at"], None, None
    track.pid, track.birth = event["pid"], event["birth"]
    track.ready, track.late = event["ready"], False
    track.was_ready = track.was_ready or track.ready


def _ready(track: Track, _: Event) -> None:
    track.ready = track.was_ready = True
    track.never_ready = track.late = False
    track.reason = ""


def _not_ready(track: Track, event: Event) -> None:
    track.never_ready, track.late = not track.was_ready, True
    track.reason = event["reason"]


def _exited(track: Track, event: Event) -> None:
    track.ready = False
    track.exit_code, track.ended = event["code"], event["at"]
    track.reason, track.stopped = event.get("reason", ""), event.get("stopped", False)
    track.pid = track.birth = None
    restarts_in = event.get("restarts_in")
    if restarts_in is not None:
        track.state = State.PENDING
        track.failures_in_row = event["in_row"]
    else:
        track.state = _END.get(event["code"], State.FAILED)


_END = {0: State.SUCCEEDED, None: State.UNKNOWN}


def _never(track: Track, event: Event) -> None:
    track.state, track.reason, track.ended = State.FAILED, event["reason"], event["at"]
    track.stopped = event.get("stopped", False)


_CHANGES: dict[str, Callable[[Any, Event], None]] = {
    "launched": _launched,
    "waiting": _waiting,
    "started": _started,
    "ready": _ready,
    "not-ready": _not_ready,
    "exited": _exited,
    "never": _never,
    "stopping": _stopping,
    "finished": _finished,
}


def encode(event: Event) -> bytes:
    """An event as its line."""
    return json.dumps(event, separators=(",", ":")).encode() + b"\n"


class Reader:
    """Reads an event log from where it stopped the last time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = 0

    def new(self) -> list[Event]:
        """The events since the last call. A log that is not there (yet, or any more) has none."""
        try:
            file: BinaryIO = self._path.open("rb")
        except FileNotFoundError:
            return []
        with file:
            file.seek(self._offset)
            whole, _, _ = file.read().rpartition(b"\n")
        if not whole:
            return []
        self._offset += len(whole) + 1
        return [event for line in whole.split(b"\n") if (event := _decode(line)) is not None]


def _decode(line: bytes) -> Event | None:
    """The event of a line; None for one that was torn, as a disk that was full for a moment leaves it."""
    try:
        event: Event = json.loads(line)
    except ValueError:
        return None
    return event
