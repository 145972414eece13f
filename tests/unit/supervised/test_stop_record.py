"""The record of the programs that have been asked to exit."""

from __future__ import annotations

from pathlib import Path

from symphony.supervised.processes.identity import ProcessId
from symphony.supervised.processes.stop_record import Kind, StopRecord

FIRST, SECOND = ProcessId(11, 1000.0), ProcessId(12, 2**53 - 1.0)


def test_another_program_reads_the_record_once(tmp_path: Path) -> None:
    path = tmp_path / "stopping"
    record = StopRecord(str(path))
    record.add(Kind.HELD, 10, [FIRST])
    record.add(Kind.SIGNALED, 10, [SECOND])
    record.add(Kind.COMMANDED, 20, ())
    # The program was killed while it wrote the next line.
    with path.open("a") as file:
        file.write("signaled 10 13")
    read = StopRecord(str(path))
    stop = read.take_previous(10)
    assert stop is not None
    assert (stop.of(Kind.HELD), stop.of(Kind.SIGNALED)) == ({FIRST}, {SECOND})
    assert Kind.COMMANDED not in stop.programs
    commanded = read.take_previous(20)
    assert commanded is not None
    assert commanded.programs == {Kind.COMMANDED: set()}
    assert read.take_previous(10) is None


def test_the_record_is_empty_when_no_stop_is_in_progress(tmp_path: Path) -> None:
    path = tmp_path / "stopping"
    record = StopRecord(str(path))
    record.clear()
    assert not path.exists()
    record.add(Kind.SIGNALED, 10, [FIRST])
    record.clear()
    assert path.read_bytes() == b""
    record.add(Kind.SIGNALED, 20, [FIRST])
    assert StopRecord(str(path)).take_previous(20) is not None


def test_a_record_that_cannot_be_written_is_ignored(tmp_path: Path) -> None:
    record = StopRecord(str(tmp_path / "missing" / "stopping"))
    record.add(Kind.SIGNALED, 10, [FIRST])
    record.clear()
