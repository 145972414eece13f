"""The event log of an experiment.

The supervisor appends events, and readers compute the experiment's state from them.

Each line is a JSON object. The value of ``event`` is the kind of event, and the value of ``at`` is
the time in seconds since the epoch. If the writer is killed, the last line can be incomplete.
Readers ignore an incomplete line.

The size of the log is limited. When the limit is reached, the log is replaced by a file that starts
with the event "checkpoint", which contains the state after the oldest events, and continues with
the newest events. `EventReader` continues in the new file after the last event that it has read.
"""

from __future__ import annotations

import errno
import json
import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from symphony.plan.state import Event, RunState, apply, fold
from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.record.record_checks import is_event

_ENCODER = json.JSONEncoder(separators=(",", ":"))
# This is faster than `json.loads`, which examines the encoding of each line.
_DECODER = json.JSONDecoder()
# The event "finished" is shorter than this.
_LAST_EVENT_BYTES = 256
# The beginning of the first line of a log whose oldest events were replaced by a checkpoint.
_CHECKPOINT_START = re.compile(rb'\{"event":"checkpoint","folded_bytes":(\d+),')
_CHECKPOINT_START_BYTES = 80


def fold_run(manifest: Mapping[str, Any], events: Iterable[Event]) -> RunState:
    """Return the state of the run with ``manifest`` after all ``events`` have been applied."""
    run = fold(process_names(manifest), events)
    apply_unrecorded_change(run, manifest)
    return run


def process_names(manifest: Mapping[str, Any]) -> list[str]:
    """Return the names of the processes in a manifest, and of those that its change has removed."""
    items = (*manifest["processes"], *previous_processes(manifest))
    return list(dict.fromkeys(item["name"] for item in items))


def previous_processes(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the processes that the latest change has removed or restarted, as they were before."""
    previous: dict[str, Any] = manifest.get("previous", {})
    processes: list[dict[str, Any]] = previous.get("processes", [])
    return processes


def unfinished_previous(run: RunState, manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the previous descriptions of the processes that a change in progress has removed or
    restarted.
    """
    return previous_processes(manifest) if run.is_changing else []


def apply_unrecorded_change(run: RunState, manifest: Mapping[str, Any]) -> None:
    """Update ``run`` with the change of the manifest, if its event is not recorded.

    The supervisor records a change after it has replaced the manifest, and can be killed before.
    """
    change = manifest.get("change")
    if change is not None:
        apply(run, change)


def names_in(events: Iterable[Event]) -> set[str]:
    """Return the names of all processes that events mention."""
    names: set[str] = set()
    for event in events:
        if "process" in event:
            names.add(event["process"])
        elif event["event"] == "checkpoint":
            names.update(event["state"]["tracks"], event["state"]["leaving"])
    return names


def recorded_leaders(run: RunState) -> dict[str, ProcessId]:
    """Return the identities of the processes whose start was recorded and whose exit was not.

    The result maps process names to identities.
    """
    return {
        name: ProcessId(track.pid, track.birth)
        for name, track in (*run.tracks.items(), *run.leaving.items())
        if track.pid is not None and track.birth is not None
    }


def encode(event: Event) -> bytes:
    """Return the event-log line for an event."""
    return _ENCODER.encode(event).encode() + b"\n"


def decode(lines: bytes) -> list[Event]:
    """Return the events that lines of an event log contain. Damaged lines are left out."""
    decoded = (_decode(line) for line in lines.split(b"\n"))
    return [event for event in decoded if event is not None]


def is_finished(path: str | os.PathLike[str]) -> bool:
    """Return whether the last event in an event log is that the experiment has finished.

    This function reads only the end of the log. A launch calls it for every experiment.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        start = max(0, os.lseek(descriptor, 0, os.SEEK_END) - _LAST_EVENT_BYTES)
        end = os.pread(descriptor, _LAST_EVENT_BYTES, start)
    except OSError:
        return False
    finally:
        os.close(descriptor)
    lines = end.splitlines()
    if not lines or b"finished" not in lines[-1]:
        return False
    event = _decode(lines[-1])
    return event is not None and event["event"] == "finished"


class EventReader:
    """An incremental reader for an event log."""

    def __init__(self, path: Path) -> None:
        self._path = path
        # The length of the lines that were read, since the beginning of the run.
        self._position = 0
        # The length of the lines that the checkpoint of the file replaces, and that of its line.
        self._folded_bytes = 0
        self._checkpoint_bytes = 0
        self.is_empty = True
        """True if the log contained nothing at the latest call of `read_new`."""

    def read_new(self) -> list[Event]:
        """Return the events that were added since the previous call.

        If these include events that a checkpoint has replaced, the first one is the checkpoint. If
        the log does not exist, return an empty list.
        """
        try:
            with self._path.open("rb") as file:
                start = self._find_start(file)
                file.seek(start)
                content = file.read()
        except FileNotFoundError:
            return []
        except OSError as exc:
            if exc.errno != errno.ESTALE:
                raise
            # Another machine has replaced the file after this one has opened it on NFS.
            return []
        self.is_empty = not content and start == 0
        complete, _, _ = content.rpartition(b"\n")
        if not complete:
            return []
        end = start + len(complete) + 1
        self._position = self._folded_bytes + end - self._checkpoint_bytes
        return decode(complete)

    def _find_start(self, file: BinaryIO) -> int:
        """Return the offset of the first event to read in the file, which can be a new one."""
        folded_bytes = _folded_bytes(file)
        if folded_bytes != self._folded_bytes:
            self._folded_bytes = folded_bytes
            file.seek(0)
            self._checkpoint_bytes = len(file.readline()) if folded_bytes else 0
        if self._position < self._folded_bytes:
            return 0
        return self._checkpoint_bytes + self._position - self._folded_bytes


def checkpoint_lengths(path: Path) -> tuple[int, int]:
    """Return the length of the lines that the checkpoint of a log replaces, and that of its line.

    Both are 0 if the log has no checkpoint. Raises OSError if the log cannot be read.
    """
    with path.open("rb") as file:
        folded_bytes = _folded_bytes(file)
        file.seek(0)
        return folded_bytes, len(file.readline()) if folded_bytes else 0


def _folded_bytes(file: BinaryIO) -> int:
    """Return the length of the lines that the checkpoint of a log replaces, or 0."""
    match = _CHECKPOINT_START.match(file.read(_CHECKPOINT_START_BYTES))
    return int(match[1]) if match else 0


def _decode(line: bytes) -> Event | None:
    """Return the event that a line contains, or None if the line is damaged.

    If the disk was full for a while, the log can contain an incomplete line in the middle.
    """
    try:
        event: Event = _DECODER.decode(line.decode())
    except (ValueError, RecursionError):
        return None
    return event if is_event(event) else None
