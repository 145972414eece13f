"""Limiting the size of logs: removing old output, and reading logs while it is removed."""

from __future__ import annotations

import errno
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from symphony.supervised.read import log_files
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.note import NoteWriter, read_note
from symphony.supervised.supervisor.capture import log_limit, log_times
from symphony.supervised.supervisor.capture.log_times import LogTimes
from symphony.supervised.supervisor.event_loop import EventLoop

LIMIT = 1 << 16


def numbered(first: int, last: int) -> bytes:
    return b"".join(b"line %07d\n" % number for number in range(first, last))


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path)
    directory.logs.mkdir()
    return directory


@pytest.fixture
def log(run: RunDirectory) -> Path:
    return run.log("p")


def used_bytes(path: Path) -> int:
    return path.stat().st_blocks * 512


# --- removing output ---


def test_oldest_lines_are_removed_and_their_space_is_freed(run: RunDirectory, log: Path) -> None:
    log.write_bytes(numbered(0, 50_000))
    assert log_limit.remove_old_output(log, LIMIT)
    text = log_files.read(run, "p")
    assert numbered(0, 50_000).decode().endswith(text)
    assert text.startswith("line ")
    assert LIMIT - len("line 0000000\n") < len(text) <= LIMIT
    assert used_bytes(log) <= LIMIT + 2 * os.stat(log).st_blksize
    assert not log_limit.remove_old_output(log, LIMIT)


def test_log_below_its_limit_is_not_changed(run: RunDirectory, log: Path) -> None:
    log.write_bytes(b"x" * LIMIT)
    assert not log_limit.remove_old_output(log, LIMIT)
    assert not run.log_start("p").exists()


def test_beginning_of_a_line_that_exceeds_the_limit_is_removed(
    run: RunDirectory, log: Path
) -> None:
    end = b"\nlast\n"
    log.write_bytes(b"first\n" + b"x" * (LIMIT + 10) + end)
    log_limit.remove_old_output(log, LIMIT)
    assert log_files.read(run, "p").encode() == b"x" * (LIMIT - len(end)) + end


def test_log_is_kept_if_the_file_system_has_no_holes(
    run: RunDirectory, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, end: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(log_limit, "punch_hole", refuse)
    log.write_bytes(numbered(0, 50_000))
    with pytest.raises(OSError, match="not supported"):
        log_limit.remove_old_output(log, LIMIT)
    assert log_files.read(run, "p").encode() == numbered(0, 50_000)


def test_output_is_removed_when_the_disk_is_full(
    run: RunDirectory, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record_start = log_limit._record_start

    def refuse_while_full(path: Path, start: int) -> None:
        if used_bytes(path) > 2 * LIMIT:
            raise OSError(errno.ENOSPC, "no space left")
        record_start(path, start)

    monkeypatch.setattr(log_limit, "_record_start", refuse_while_full)
    log.write_bytes(numbered(0, 50_000))
    assert log_limit.remove_old_output(log, LIMIT)
    assert log_files.read(run, "p").startswith("line ")


# --- reading ---


def test_all_readers_start_after_the_removed_output(run: RunDirectory, log: Path) -> None:
    log.write_bytes(numbered(0, 50_000))
    run.log_times("p").write_text("10.0 13\n11.0 13000\n12.0 649987\n")
    log_limit.remove_old_output(log, LIMIT)
    kept = log_files.read(run, "p")
    assert "\0" not in kept
    assert log_files.read(run, "p", since=10.5) == kept
    assert log_files.read(run, "p", since=12.5) == "line 0049999\n"
    assert log_files.read(run, "p", tail=2) == "line 0049998\nline 0049999\n"
    assert log_files.read(run, "p", tail=49_000) == kept
    merged, _ = log_files.read_merged(run, ["p"])
    assert "".join(block.text for block in merged) == kept
    assert "".join(log_files.LogTail(log, 100).read_new()) == kept


def test_follower_that_is_too_slow_continues_with_a_whole_line(log: Path) -> None:
    log.write_bytes(b"line 0\nincomp")
    tail = log_files.LogTail(log)
    assert list(tail.read_new()) == ["line 0\n"]
    with log.open("ab") as file:
        file.write(numbered(0, 50_000))
    log_limit.remove_old_output(log, LIMIT)
    first, *rest = "".join(tail.read_new()).splitlines()
    assert first.startswith("line ")
    assert f"{first}\n" + "".join(f"{line}\n" for line in rest) in numbered(0, 50_000).decode()


def test_reader_never_sees_output_that_is_being_removed(log: Path) -> None:
    """The writer, the limit and the reader run at the same time."""
    is_written = threading.Event()

    def write() -> None:
        with log.open("ab", buffering=0) as file:
            for first in range(0, 200_000, 1000):
                file.write(numbered(first, first + 1000))
        is_written.set()

    def limit() -> None:
        while not is_written.is_set():
            log_limit.remove_old_output(log, LIMIT)

    log.touch()
    threads = [threading.Thread(target=write), threading.Thread(target=limit)]
    for thread in threads:
        thread.start()
    tail = log_files.LogTail(log)
    numbers: list[int] = []
    is_last_read = False
    while not is_last_read:
        is_last_read = is_written.is_set()
        numbers += [
            int(line.removeprefix("line ")) for line in "".join(tail.read_new()).splitlines()
        ]
    for thread in threads:
        thread.join()
    assert numbers == sorted(set(numbers))
    assert numbers[-1] == 199_999


# --- the supervisor ---


def run_loop_until(loop: EventLoop, condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20

    def check() -> None:
        if condition() or time.monotonic() > deadline:
            loop.stop()
        else:
            loop.after(0.01, check)

    loop._running = True
    check()
    loop.run()
    assert condition()


@pytest.fixture
def loop() -> Iterator[EventLoop]:
    """Yield an event loop whose descriptors are closed when the test has finished."""
    errors: list[Exception] = []
    loop = EventLoop(errors.append)
    yield loop
    assert errors == []
    signal.set_wakeup_fd(-1)
    loop._epoll.close()
    loop._wake_read.close()
    loop._wake_write.close()


@pytest.fixture(params=[True, False], ids=["inotify", "polling"])
def recorder(
    request: pytest.FixtureRequest,
    run: RunDirectory,
    loop: EventLoop,
    monkeypatch: pytest.MonkeyPatch,
) -> LogTimes:
    def refuse() -> None:
        raise OSError(24, "Too many open files")

    if not request.param:
        monkeypatch.setattr("symphony.supervised.read.inotify.FileWatcher", refuse)
    monkeypatch.setattr(log_times, "INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(log_times, "POLL_INTERVAL_SECONDS", 0.02)
    monkeypatch.setattr(log_times, "MAX_TIMES_BYTES", 200)
    return LogTimes(loop, run, {"p": LIMIT}, NoteWriter(run))


def test_growing_log_is_limited_and_its_times_stay_valid(
    recorder: LogTimes, run: RunDirectory, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log.touch()
    recorder.watch(["p"])
    monkeypatch.setattr(RunDirectory, "is_disk_full", lambda _: True)
    for first in range(0, 100_000, 5000):
        with log.open("ab") as file:
            file.write(numbered(first, first + 5000))
        size = log.stat().st_size
        run_loop_until(recorder._loop, lambda size=size: recorder._recorded.get("p") == size)  # type: ignore[misc]
    run_loop_until(recorder._loop, lambda: read_note(run) != "")
    recorder.close()
    assert read_note(run).endswith(", so output can be missing")
    assert used_bytes(log) <= 2 * LIMIT
    assert run.log_times("p").stat().st_size <= 500
    times = list(log_files.log_times(run, "p"))
    assert times[-1][1] == log.stat().st_size
    assert log_files.read(run, "p", since=times[-2][0]).endswith("line 0099999\n")


def test_note_names_the_logs_that_cannot_be_limited(
    recorder: LogTimes, run: RunDirectory, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(descriptor: int, end: int) -> None:
        raise OSError(errno.EOPNOTSUPP, "not supported")

    monkeypatch.setattr(log_limit, "punch_hole", refuse)
    log.write_bytes(numbered(0, 50_000))
    recorder.watch(["p"])
    run_loop_until(recorder._loop, lambda: read_note(run) != "")
    recorder.close()
    assert read_note(run).startswith("the logs of p exceed their log_limit, because old lines")
    assert read_note(run).endswith(f"{run.logs} (not supported)")


def test_records_of_a_truncated_log_are_removed(
    recorder: LogTimes, run: RunDirectory, log: Path
) -> None:
    log.write_bytes(numbered(0, 50_000))
    recorder.watch(["p"])
    run_loop_until(recorder._loop, run.log_start("p").exists)
    log.write_bytes(b"new\n")
    run_loop_until(recorder._loop, lambda: not run.log_start("p").exists())
    recorder.close()
    assert [length for _, length in log_files.log_times(run, "p")] == [4]
    assert log_files.read(run, "p") == "new\n"


def test_log_of_a_process_that_is_being_stopped_is_recorded_again_after_a_pause(
    recorder: LogTimes, run: RunDirectory, log: Path
) -> None:
    log.touch()
    recorder.watch(["p"])
    recorder.pause(["p"])
    for size in (4, 8):
        with log.open("ab") as file:
            file.write(b"new\n")
        run_loop_until(recorder._loop, lambda size=size: recorder._recorded.get("p") == size)  # type: ignore[misc]
    recorder.close()
    assert [length for _, length in log_files.log_times(run, "p")] == [4, 8]
