"""Writing the event log: on a full disk, and with a maximum size. Faults of system calls are
injected.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from symphony.plan.state import Event, apply, fold
from symphony.supervised.read.log_files import growing
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.event_file import EventReader
from symphony.supervised.record.note import NOTE_BYTES, NoteWriter, read_note
from symphony.supervised.supervisor import event_log
from symphony.supervised.supervisor.event_log import RESERVE_BYTES, EventLog

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
    log = EventLog(run, NoteWriter(run), 3, fold([], []))
    log.append(EVENTS[:1])
    assert (log.is_complete, read_note(run)) == (True, "")
    disk = FullDisk(space, error)
    monkeypatch.setattr(event_log.os, "write", disk.write)
    log.append(EVENTS[1:3])
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
    log = EventLog(run, NoteWriter(run), 3, fold([], []))
    if log._reserve_end is None:
        pytest.skip("this file system has no reserves")
    for event in EVENTS:
        log.append([event])
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
        EventLog(run, NoteWriter(run), 3, fold([], []))
    assert refusal.value.filename == str(run.events)


def test_log_on_a_file_system_without_reserves(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_log, "allocate", allocate_failing(errno.EOPNOTSUPP))
    log = EventLog(run, NoteWriter(run), 3, fold([], []))
    log.append(EVENTS[:1])
    assert EventReader(run.events).read_new() == [EVENTS[0]]


def test_reserve_is_extended_before_it_is_used_up(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    ends = []
    monkeypatch.setattr(event_log, "allocate", lambda _, offset, size: ends.append(offset + size))
    log = EventLog(run, NoteWriter(run), 0, fold([], []))
    while len(ends) < 4:
        log.append(EVENTS[:1])
        assert ends[-1] >= run.events.stat().st_size + RESERVE_BYTES


# --- the maximum size ---

LIMIT = 20_000


@pytest.fixture
def small_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_log, "LIMIT_BYTES", LIMIT)
    monkeypatch.setattr(event_log, "LIMIT_BYTES_PER_PROCESS", 0)


class Writer:
    """A supervisor that records events, with its state."""

    def __init__(self, run: RunDirectory, events: list[Event]) -> None:
        self.state = fold(["p"], events)
        self.log = EventLog(run, NoteWriter(run), 1, self.state)
        self.count = len(events)

    def append(self) -> Event:
        self.count += 1
        event = {"event": "exited", "at": float(self.count), "process": "p", "code": self.count}
        apply(self.state, event)
        self.log.append([event])
        return event


@pytest.mark.usefixtures("small_limit")
@pytest.mark.one_python
@pytest.mark.parametrize("pause", [1, 7, 100])
def test_reader_of_a_limited_log_loses_and_repeats_no_event(run: RunDirectory, pause: int) -> None:
    writer = Writer(run, [])
    reader, written, read = EventReader(run.events), [], []
    inodes = set()
    for number in range(3_000):
        written.append(writer.append())
        # A supervisor that replaces another one has no earlier checkpoint.
        assert run.events.stat().st_size < 1.5 * LIMIT + 1_000
        inodes.add(run.events.stat().st_ino)
        if number % pause == 0:
            read += reader.read_new()
        if number in (700, 2_000):
            # The supervisor was killed, and another one replaces it.
            writer = Writer(run, EventReader(run.events).read_new())
    assert len(inodes) > 1
    assert read + reader.read_new() == written
    late = EventReader(run.events).read_new()
    assert late[0]["event"] == "checkpoint"
    assert late[1:] == written[-len(late) + 1 :]
    assert fold(["p"], late) == fold(["p"], written)
    assert sorted(path.name for path in run.path.iterdir()) == ["events.jsonl", "note"]


@pytest.mark.usefixtures("small_limit")
def test_reader_that_is_behind_continues_with_the_checkpoint(run: RunDirectory) -> None:
    writer = Writer(run, [])
    reader = EventReader(run.events)
    written = [writer.append()]
    assert reader.read_new() == written
    written += [writer.append() for _ in range(1_000)]
    found = reader.read_new()
    assert found[0]["event"] == "checkpoint"
    assert fold(["p"], [written[0], *found]) == fold(["p"], written)
    assert [writer.append()] == reader.read_new()


@pytest.mark.usefixtures("small_limit")
@pytest.mark.parametrize("call", ["write", "replace", "allocate"])
def test_log_grows_while_the_disk_has_no_space_for_a_new_file(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    writer = Writer(run, [])
    real_write, real_allocate = event_log._write_all, event_log.allocate
    is_full = True

    def fail(*arguments: Any) -> Any:
        if is_full and run.path.joinpath("events.jsonl.new").exists():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real = {"write": real_write, "replace": os.rename, "allocate": real_allocate}[call]
        return real(*arguments)

    if call == "replace":
        monkeypatch.setattr(event_log.os, "replace", fail)
    else:
        monkeypatch.setattr(event_log, "_write_all" if call == "write" else call, fail)
    written = [writer.append() for _ in range(1_500)]
    assert EventReader(run.events).read_new() == written
    assert run.events.stat().st_size > 2 * LIMIT
    assert not run.path.joinpath("events.jsonl.new").exists()
    is_full = False
    written += [writer.append() for _ in range(500)]
    assert run.events.stat().st_size < LIMIT + 1_000
    assert fold(["p"], EventReader(run.events).read_new()) == fold(["p"], written)


@pytest.mark.usefixtures("small_limit")
def test_log_of_another_run_is_not_replaced(tmp_path: Path) -> None:
    run = RunDirectory(tmp_path / "e")
    run.path.mkdir()
    writer = Writer(run, [])
    run.path.rename(tmp_path / "moved")
    run.path.mkdir()
    run.events.write_text("other\n")
    for _ in range(1_500):
        writer.append()
    assert run.events.read_text() == "other\n"


@pytest.mark.usefixtures("small_limit")
def test_new_log_has_a_reserve(run: RunDirectory) -> None:
    writer = Writer(run, [])
    if writer.log._reserve_end is None:
        pytest.skip("this file system has no reserves")
    for _ in range(1_000):
        writer.append()
    assert run.events.stat().st_blocks * 512 > run.events.stat().st_size + RESERVE_BYTES
    writer.log.release_reserve()
    assert run.events.stat().st_blocks * 512 < run.events.stat().st_size + RESERVE_BYTES


@pytest.mark.usefixtures("small_limit")
def test_waiting_for_events_continues_in_the_new_log(run: RunDirectory) -> None:
    writer = Writer(run, [])
    reader, written, read = EventReader(run.events), [], []
    with growing({"events": run.events}) as wait:
        wait(0.0)
        for _ in range(1_000):
            written.append(writer.append())
            assert wait(10.0) == {"events"}
            read += reader.read_new()
    assert read == written


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
