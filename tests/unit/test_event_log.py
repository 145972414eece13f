"""Writing the event log on a full disk. Faults are injected into the system calls."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from symphony.host.run.directory import RunDirectory
from symphony.host.run.events import EventReader
from symphony.host.run.note import NOTE_BYTES, NoteWriter, read_note
from symphony.host.supervisor import event_log
from symphony.host.supervisor.event_log import RESERVE_BYTES, EventLog

EVENTS = [
    {"event": "exited", "at": 1.0, "process": f"p-{number}", "code": number} for number in range(3)
]


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    return RunDirectory(tmp_path)


class FullDisk:
    """A replacement for `os.write`, which writes only ``space`` more bytes."""

    def __init__(self, space: int, error: int) -> None:
        self.space = space
        self.error = error

    def write(self, descriptor: int, data: bytes | bytearray) -> int:
        if self.space == 0:
            raise OSError(self.error, os.strerror(self.error))
        count = _real_write(descriptor, data[: self.space])
        self.space -= count
        return count


_real_write = os.write


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO])
@pytest.mark.parametrize("space", [0, 10])
def test_events_are_kept_until_they_can_be_written(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, error: int, space: int
) -> None:
    log = EventLog(run, NoteWriter(run), 3)
    log.append(EVENTS[0])
    assert (log.is_complete, read_note(run)) == (True, "")
    disk = FullDisk(space, error)
    monkeypatch.setattr(event_log.os, "write", disk.write)
    log.append(EVENTS[1])
    log.append(EVENTS[2])
    assert not log.is_complete
    assert EventReader(run.events).read_new() == [EVENTS[0]]
    assert "are not recorded yet" in read_note(run)
    assert f"{run.events} cannot be written ({os.strerror(error)}" in read_note(run)
    assert (" bytes are needed, and " in read_note(run)) == (error == errno.ENOSPC)
    disk.space = 10_000
    log.write_pending()
    assert (log.is_complete, read_note(run)) == (True, "")
    lines = run.events.read_text().splitlines()
    assert [json.loads(line) for line in lines] == EVENTS


def test_reserve_is_allocated_beyond_the_end_and_released(run: RunDirectory) -> None:
    log = EventLog(run, NoteWriter(run), 3)
    if log._reserve_end is None:
        pytest.skip("this file system has no reserves")
    for event in EVENTS:
        log.append(event)
    size = run.events.stat().st_size
    assert size == len(run.events.read_bytes()) < 1000
    assert run.events.stat().st_blocks * 512 > RESERVE_BYTES
    log.release_reserve()
    assert run.events.stat().st_size == size
    assert run.events.stat().st_blocks * 512 < RESERVE_BYTES


def allocate_failing(error: int) -> Callable[[int, int, int], None]:
    def allocate(_descriptor: int, _offset: int, _length: int) -> None:
        raise OSError(error, os.strerror(error))

    return allocate


def test_log_without_space_for_a_reserve_is_refused(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "allocate", allocate_failing(errno.ENOSPC))
    with pytest.raises(OSError, match="No space left") as refusal:
        EventLog(run, NoteWriter(run), 3)
    assert refusal.value.filename == str(run.events)


def test_log_on_a_file_system_without_reserves(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "allocate", allocate_failing(errno.EOPNOTSUPP))
    log = EventLog(run, NoteWriter(run), 3)
    log.append(EVENTS[0])
    assert EventReader(run.events).read_new() == [EVENTS[0]]


def test_reserve_is_extended_before_it_is_used_up(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    monkeypatch.setattr(event_log, "allocate", lambda _, offset, size: ends.append(offset + size))
    log = EventLog(run, NoteWriter(run), 0)
    while len(ends) < 4:
        log.append(EVENTS[0])
        assert ends[-1] >= run.events.stat().st_size + RESERVE_BYTES


def test_note_has_a_fixed_size_and_one_message_for_each_topic(run: RunDirectory) -> None:
    assert read_note(run) == ""
    notes = NoteWriter(run)
    for topic, message, expected in (
        ("log", "the disk\nis full", "the disk is full"),
        ("error", "Ärger", "the disk is full; Ärger"),
        ("log", "", "Ärger"),
        ("error", "x" * 2 * NOTE_BYTES, "x" * NOTE_BYTES),
        ("error", "", ""),
    ):
        notes.set(topic, message)
        assert read_note(run) == expected
        assert run.note.stat().st_size == NOTE_BYTES
