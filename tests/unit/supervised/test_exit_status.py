"""The exit codes of processes that other programs have started."""

from __future__ import annotations

import os
import platform
import select
import subprocess
from pathlib import Path

import pytest

from symphony.supervised.processes.exit_status import ExitRecord, exit_code
from symphony.supervised.processes.identity import ProcessId, identify

# Since this version of Linux, a pidfd provides the exit code.
_VERSION = tuple(int(number) for number in platform.release().split(".")[:2])


@pytest.mark.parametrize(("command", "code"), [("exit 7", 7), ("kill -KILL $$", 137)])
def test_exit_code_is_known_before_and_after_the_parent_reads_it(command: str, code: int) -> None:
    process = subprocess.Popen(["sh", "-c", f"read -r _; {command}"], stdin=subprocess.PIPE)
    assert process.stdin is not None
    found = identify(process.pid)
    assert found is not None
    pidfd = os.pidfd_open(process.pid)
    try:
        assert exit_code(found, pidfd) is None
        process.stdin.close()
        select.select([pidfd], [], [])
        assert exit_code(found, None) == code
        # Another process has the same pid.
        assert exit_code(ProcessId(found.pid, found.birth + 1), None) is None
        process.wait()
        assert exit_code(found, None) is None
        if _VERSION >= (6, 15):
            assert exit_code(found, pidfd) == code
    finally:
        os.close(pidfd)


def test_recorded_exits_are_read_as_far_as_they_are_complete(tmp_path: Path) -> None:
    """Also after the file was emptied, because it was too large."""
    path = tmp_path / "exits"
    record = ExitRecord(path)
    assert record.code(ProcessId(1, 10.0)) is None
    path.write_text("1 10 0\n2 20 137\n3 30 1")
    assert record.code(ProcessId(1, 10.0)) == 0
    assert record.code(ProcessId(2, 20.0)) == 137
    assert record.code(ProcessId(2, 21.0)) is None, "another process with the same pid"
    assert record.code(ProcessId(3, 30.0)) is None, "the line is not complete"
    with path.open("a") as file:
        file.write("2\n")
    assert record.code(ProcessId(3, 30.0)) == 12
    path.write_text("damaged\n4 40 5\n")
    assert record.code(ProcessId(4, 40.0)) == 5
    assert record.code(ProcessId(1, 10.0)) == 0
