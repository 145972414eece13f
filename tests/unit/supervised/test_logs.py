"""Reading logs: tails, times, growing files and the order between processes."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symphony.events import EventKind, ExperimentEvent
from symphony.log_blocks import LogBlock, to_lines
from symphony.supervised.read import log_files
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.run_paths import REMOTE_FILE
from tests.unit.scan_cost import passes


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path)
    directory.logs.mkdir()
    return directory


def write(run: RunDirectory, process: str, data: bytes, times: str = "") -> None:
    run.log(process).write_bytes(data)
    if times:
        run.log_times(process).write_text(times)


contents = st.lists(
    st.sampled_from([b"", b"a", b"bc", b"\n", b"\n\n", b"\r", "é".encode(), b"x" * 20]), max_size=20
).map(b"".join)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tail") / "log"


# --- the last lines ---


@pytest.mark.parametrize("block_size", [1, 2, 3, 7, 1 << 18])
@given(data=contents, count=st.integers(-1, 12))
def test_tail_start_is_the_offset_of_the_last_lines(
    block_size: int, file: Path, data: bytes, count: int
) -> None:
    data = data.replace(b"\r", b"?")  # splitlines() would split at it
    file.write_bytes(data)
    lines = data.splitlines(keepends=True)
    expected = b"".join(lines[-count:]) if count > 0 else b""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log_files, "_BLOCK_BYTES", block_size)
        assert data[log_files.tail_start(file, count) :] == expected


def test_read_with_a_tail(run: RunDirectory) -> None:
    write(run, "p", b"a\nb\nc\xff")
    assert log_files.read(run, "p") == "a\nb\nc\udcff"
    assert log_files.read(run, "p", tail=2) == "b\nc\udcff"
    assert log_files.read(run, "p", tail=0) == ""
    assert log_files.read(run, "none") == ""
    assert [log_files.tail_start(run.log("none"), count) for count in (0, 3)] == [0, 0]


# --- since a time ---


@pytest.mark.parametrize(
    ("since", "tail", "text"),
    [
        (9.9, None, "one\ntwo\nthree\n"),
        (10.0, None, "two\nthree\n"),
        (11.5, None, "three\n"),
        (99, None, ""),
        (10.0, 1, "three\n"),
        (11.0, 9, "three\n"),
    ],
)
def test_read_since_a_time(run: RunDirectory, since: float, tail: int | None, text: str) -> None:
    write(run, "p", b"one\ntwo\nthree\n", "10.0 4\n11.0 8\n12.0 14\n")
    assert list(log_files.log_times(run, "p")) == [(10.0, 4), (11.0, 8), (12.0, 14)]
    assert log_files.read(run, "p", since=since, tail=tail) == text


def test_read_since_a_time_starts_at_a_whole_line(run: RunDirectory) -> None:
    write(run, "p", b"one\nloading... done\nthree\n", "10.0 14\n12.0 25\n")
    assert log_files.read(run, "p", since=11) == "loading... done\nthree\n"


def test_incomplete_time_is_ignored(run: RunDirectory) -> None:
    write(run, "p", b"one\ntwo\nx\n", "10.0 4\n11.012.0 8\n\n12.5 8\n13.0")
    assert list(log_files.log_times(run, "p")) == [(10.0, 4), (12.5, 8)]


def test_log_without_times_is_read_completely(run: RunDirectory) -> None:
    write(run, "p", b"one\n")
    assert list(log_files.log_times(run, "p")) == []
    assert log_files.read(run, "p", since=99) == "one\n"


# --- growing logs ---


def new_lines(tail: log_files.LogTail, end: int | None = None) -> list[str]:
    return [line for text in tail.read_new(end) for line in text.removesuffix("\n").split("\n")]


@given(contents, st.lists(st.integers(0, 60), max_size=8))
def test_growing_log_is_read_in_whole_lines(file: Path, data: bytes, cuts: list[int]) -> None:
    file.write_bytes(b"")
    tail, lines, written = log_files.LogTail(file), [], 0
    for cut in [*sorted(cuts), len(data)]:
        end = max(written, min(cut, len(data)))
        with file.open("ab") as log:
            log.write(data[written:end])
        written = end
        lines += new_lines(tail)
    *complete, incomplete = data.decode().split("\n")
    assert lines == complete
    assert tail.read_incomplete_line() == ([incomplete] if incomplete else [])
    assert new_lines(tail) == tail.read_incomplete_line() == []
    assert tail.offset == len(data)


@given(contents, st.lists(st.integers(0, 60), max_size=8))
def test_log_is_read_up_to_an_offset(file: Path, data: bytes, ends: list[int]) -> None:
    file.write_bytes(data)
    tail, lines = log_files.LogTail(file), []
    for end in ends:
        before = tail.offset
        lines += new_lines(tail, end)
        assert tail.offset == max(before, min(end, len(data)))
    lines += new_lines(tail)
    text = "".join(f"{line}\n" for line in lines) + "".join(tail.read_incomplete_line())
    assert text == data.decode()


def test_character_split_between_reads_is_decoded(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = log_files.LogTail(log)
    assert new_lines(tail) == []
    for byte in "é日🎻\n".encode():
        with log.open("ab") as file:
            file.write(bytes([byte]))
        lines = new_lines(tail)
    assert lines == ["é日🎻"]


def test_progress_bar_is_read_while_it_is_written(tmp_path: Path) -> None:
    log = tmp_path / "log"
    tail = log_files.LogTail(log)
    read: list[str] = []
    # The second part ends within a character, and the last one begins with a line break.
    for part in (b"one\r", b"\n\r10%\xe2", b"\x96\x88\r20%", b" 30%", b"\ntwo"):
        with log.open("ab") as file:
            file.write(part)
        read += tail.read_new(partial=True)
    assert read == ["one\r\n", "\r10%", "█\r20%", " 30%", "\n"]
    assert tail.read_incomplete_line() == ["two"]


def test_truncated_log_is_read_from_its_beginning(tmp_path: Path) -> None:
    log = tmp_path / "p.log"
    log.write_bytes(b"one\ntwo\nunfini")
    tail = log_files.LogTail(log)
    assert new_lines(tail) == ["one", "two"]
    log.write_bytes(b"")
    assert new_lines(tail) == []
    with log.open("ab") as file:
        file.write(b"three\nfour, which makes the log longer than before\n")
    assert new_lines(tail) == [
        "unfini",
        "three",
        "four, which makes the log longer than before",
    ]


def test_truncated_log_is_read_since_a_time(run: RunDirectory) -> None:
    write(run, "p", b"one\n", "10.0 400\n11.0 800\n")
    assert log_files.read(run, "p", since=10.5) == ""
    assert texts(log_files.read_merged(run, ["p"])[0]) == ["p:one"]


def test_memory_for_a_line_is_limited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "_BLOCK_BYTES", 4)
    monkeypatch.setattr(log_files, "MAX_LINE_BYTES", 8)
    log = tmp_path / "p.log"
    log.write_bytes("123456789012\n1234567890éa\n".encode())
    expected = ["12345678", "9012\n", "1234567890", "éa\n"]
    assert list(log_files.LogTail(log).read_new()) == expected
    # The rest of a line that was begun is not held.
    expected[1:2] = ["9012", "\n"]
    assert list(log_files.LogTail(log).read_new(partial=True)) == expected


@pytest.mark.one_python
def test_line_that_grows_in_small_steps_is_read_fast(tmp_path: Path) -> None:
    step, steps = b"." * 4000, 1000
    tail = log_files.LogTail(tmp_path / "p.log")

    def read(_: str) -> None:
        tail.path.write_bytes(b"")
        for _ in range(steps):
            with tail.path.open("ab") as file:
                file.write(step)
            assert list(tail.read_new(partial=True)) == []
        with tail.path.open("ab") as file:
            file.write(b"\n")
        assert "".join(tail.read_new(partial=True)) == "." * len(step) * steps + "\n"

    assert passes(read) < 25


def test_incomplete_last_line_can_be_ignored(tmp_path: Path) -> None:
    log = tmp_path / "p.log"
    log.write_bytes(b"one\ntwo\nMARK")
    mark = re.compile(rb"MARK")
    assert log_files.tail_start(log, 1, mark) == len(b"one\n")
    assert log_files.tail_start(log, 1) == len(b"one\ntwo\n")
    log.write_bytes(b"one\ntwo\nx MARK")
    assert log_files.tail_start(log, 1, mark) == len(b"one\ntwo\n")


# --- several processes ---


def texts(blocks: Iterable[Any]) -> list[str]:
    return [f"{line.process}:{line.text}" for line in to_lines(blocks)]


def test_logs_are_merged_in_the_order_of_time(run: RunDirectory) -> None:
    write(run, "a", b"1\n3\n5\n", "10.0 2\n12.0 4\n14.0 6\n")
    write(run, "b", b"2\n4\n6", "11.0 2\n13.0 4\n")
    lines, tails = log_files.read_merged(run, ["a", "b"])
    assert texts(lines) == ["a:1", "b:2", "a:3", "b:4", "a:5"]
    assert tails["b"].read_incomplete_line() == ["6"]
    assert [tail.offset for tail in tails.values()] == [6, 5]
    assert texts(log_files.read_merged(run, ["a", "b"], tail=1)[0]) == ["a:5"]
    assert texts(log_files.read_merged(run, ["a", "b"], since=11.5)[0]) == ["a:3", "b:4", "a:5"]
    assert texts(log_files.read_merged(run, ["none"])[0]) == []


def test_line_is_merged_at_the_time_at_which_it_was_completed(run: RunDirectory) -> None:
    write(run, "a", b"begun... done\n", "10.0 8\n12.0 14\n")
    write(run, "b", b"between\n", "11.0 8\n")
    assert texts(log_files.read_merged(run, ["a", "b"])[0]) == ["b:between", "a:begun... done"]


def test_one_log_stays_in_order_when_the_clock_is_set_back(run: RunDirectory) -> None:
    now = time.time()
    write(run, "a", b"1\n2\n3\n", f"{now + 3600:.3f} 2\n{now + 1800:.3f} 4\n")
    assert texts(log_files.read_merged(run, ["a"])[0]) == ["a:1", "a:2", "a:3"]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), max_size=12))
def test_merging_keeps_every_line_in_order(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, int]]
) -> None:
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    directory.logs.mkdir()
    expected = []
    for at, (process, count) in enumerate(writes):
        with directory.log(process).open("a") as log:
            log.writelines(f"{at}.{line}\n" for line in range(count))
        with directory.log_times(process).open("a") as times:
            times.write(f"{at} {directory.log(process).stat().st_size}\n")
        expected += [f"{process}:{at}.{line}" for line in range(count)]
    assert texts(log_files.read_merged(directory, ["a", "b"])[0]) == expected


# --- following ---


def test_following_ends_after_the_last_output(run: RunDirectory) -> None:
    write(run, "p", b"before\n")
    outputs = iter(["", "one\ntw", "o\n", "last words"])

    def have_ended() -> bool:
        """Write some output before each check, as a process does between two checks."""
        output = next(outputs, None)
        if output is not None:
            with run.log("p").open("a") as log:
                log.write(output)
        return output is None

    lines, tails = log_files.read_merged(run, ["p"])
    written = list(lines)
    followed = list(log_files.follow(run, tails, have_ended, check_every=0.01))
    assert texts(written + followed) == ["p:before", "p:one", "p:two", "p:last words"]


def an_event(at: float, kind: EventKind, process: str = "a") -> ExperimentEvent:
    return ExperimentEvent(at=at, kind=kind, process=process, text=str(kind))


def shown(items: Iterable[LogBlock | ExperimentEvent]) -> list[str]:
    return [item.text for item in items]


def test_events_are_between_the_lines(run: RunDirectory) -> None:
    write(run, "a", b"1\n3\n", "10.001 2\n12.0 4\n")
    write(run, "b", b"2\n", "11.0 2\n")
    # The length of a log is recorded just before the exit, and is rounded.
    events = [an_event(10.0006, EventKind.EXITED), an_event(11.5, EventKind.STARTED)]
    lines, tails = log_files.read_merged(run, ["a", "b"], events=events)
    assert shown(lines) == ["1\n", "exited", "2\n", "started", "3\n"]
    # A process writes its last output before its exit is recorded, and the output of its next
    # execution before the start is recorded. A child can write after the exit.
    steps: list[tuple[str, str, str, list[ExperimentEvent]]] = [
        ("last\nwords", "13.0 14\n", "again\n", [an_event(13.0, EventKind.EXITED)]),
        ("", "", "", []),
        ("", "", "more\n", [an_event(13.1, EventKind.STARTED)]),
        ("", "14.0 25\n", "", [an_event(14.0, EventKind.EXITED)]),
        ("of a child\n", "", "", []),
    ]

    def read_events() -> list[ExperimentEvent]:
        before, recorded, after, new_events = steps.pop(0) if steps else ("", "", "", [])
        append(run.log("a"), before)
        append(run.log_times("a"), recorded)
        append(run.log("a"), after)
        return new_events

    followed = log_files.follow(
        run, tails, lambda: not steps, read_events=read_events, check_every=0.01
    )
    assert shown(followed) == [
        *("last\n", "words", "exited"),
        *("started", "again\n", "more\n", "exited"),
        "of a child\n",
    ]


def test_output_of_another_machine_that_is_visible_late_comes_before_the_exit(
    run: RunDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.file(REMOTE_FILE).touch()
    write(run, "a", b"", "10.0 5\n")
    lines, tails = log_files.read_merged(run, ["a"])
    assert shown(lines) == []
    sleep = time.sleep

    def become_visible(seconds: float) -> None:
        sleep(seconds)
        run.log("a").write_text("last\n")

    monkeypatch.setattr(time, "sleep", become_visible)
    exits = [an_event(10.0, EventKind.EXITED)]
    followed = log_files.follow(run, tails, lambda: True, read_events=lambda: exits)
    assert shown(followed) == ["last\n", "exited"]


def append(path: Path, text: str) -> None:
    with path.open("a") as file:
        file.write(text)


@pytest.mark.parametrize("has_inotify", [True, False])
def test_growth_is_reported_at_once(
    tmp_path: Path, has_inotify: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse() -> None:
        raise OSError(24, "Too many open files")

    if not has_inotify:
        monkeypatch.setattr("symphony.supervised.read.inotify.FileWatcher", refuse)
    path = tmp_path / "log"
    path.write_text("")
    with log_files.growing({"p": path}) as wait:
        wait(5.0)  # the first call reports the existing content
        with path.open("a") as log:
            log.write("x")
        assert wait(3600.0) == {"p"}
        wait(0.01)
        start = time.monotonic()
        assert wait(0.05) == set()
        assert time.monotonic() - start >= 0.04


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are counted in /proc")
def test_following_leaves_no_descriptor_open(run: RunDirectory) -> None:
    write(run, "p", b"line\n")
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        lines, tails = log_files.read_merged(run, ["p"])
        assert texts(lines) == ["p:line"]
        assert list(log_files.follow(run, tails, lambda: True)) == []
    # Another test may close a descriptor of its own in the meantime.
    assert set(os.listdir("/proc/self/fd")) <= before
