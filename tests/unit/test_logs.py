"""Logs: the last lines, what came since a time, lines as they come, and the order between processes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from symphony import LogLine
from symphony.host import logs
from symphony.host.run.directory import RunDirectory


@pytest.fixture
def run(tmp_path: Path) -> RunDirectory:
    directory = RunDirectory(tmp_path)
    directory.logs.mkdir()
    return directory


def write(run: RunDirectory, process: str, data: bytes, notes: str = "") -> None:
    run.log(process).write_bytes(data)
    if notes:
        run.log_times(process).write_text(notes)


# --- the last lines ---

contents = st.lists(
    st.sampled_from([b"", b"a", b"bc", b"\n", b"\n\n", b"\r", "é".encode(), b"x" * 20]), max_size=20
).map(b"".join)


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tail") / "log"


@pytest.fixture(params=[1, 2, 3, 7, 1 << 18], scope="module")
def chunk(request: pytest.FixtureRequest) -> Iterator[int]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(logs, "_BLOCK_BYTES", request.param)
        yield request.param


@given(contents, st.integers(-1, 12))
def test_tail_start_is_where_the_last_lines_begin(
    chunk: int, file: Path, data: bytes, count: int
) -> None:
    file.write_bytes(data)
    lines = (
        data.splitlines(keepends=True)
        if b"\r" not in data
        else data.replace(b"\r", b"?").splitlines(keepends=True)
    )
    expected = b"".join(lines[-count:]) if count > 0 else b""
    start = logs.tail_start(file, count)
    assert data[start:].replace(b"\r", b"?") == expected


def test_the_tail_of_a_file_that_is_not_there_begins_at_its_beginning(tmp_path: Path) -> None:
    assert logs.tail_start(tmp_path / "none", 3) == 0
    assert logs.tail_start(tmp_path / "none", 0) == 0


def test_reading_with_a_tail(run: RunDirectory) -> None:
    write(run, "p", b"a\nb\nc\xff")
    assert logs.read(run, "p") == "a\nb\nc\ufffd"
    assert logs.read(run, "p", tail=2) == "b\nc\ufffd"
    assert logs.read(run, "p", tail=0) == ""
    assert logs.read(run, "none") == ""


# --- since a time ---


def test_reading_since_a_time_begins_at_the_last_note_before_it(run: RunDirectory) -> None:
    write(run, "p", b"one\ntwo\nthree\n", "10.0 4\n11.0 8\n12.0 14\n")
    assert logs.log_times(run, "p") == [(10.0, 4), (11.0, 8), (12.0, 14)]
    assert logs.read(run, "p", since=9.9) == "one\ntwo\nthree\n"
    assert logs.read(run, "p", since=10.0) == "two\nthree\n"
    assert logs.read(run, "p", since=11.5) == "three\n"
    assert logs.read(run, "p", since=99) == ""
    assert logs.read(run, "p", since=10.0, tail=1) == "three\n"
    assert logs.read(run, "p", since=11.0, tail=9) == "three\n"


def test_a_torn_note_is_not_there_yet(run: RunDirectory) -> None:
    write(run, "p", b"one\ntwo\n", "10.0 4\n11.0")
    assert logs.log_times(run, "p") == [(10.0, 4)]


def test_without_notes_all_is_read(run: RunDirectory) -> None:
    write(run, "p", b"one\n")
    assert logs.log_times(run, "p") == []
    assert logs.read(run, "p", since=99) == "one\n"


def test_reading_since_a_time_begins_at_a_line(run: RunDirectory) -> None:
    write(run, "p", b"one\nloading... done\nthree\n", "10.0 14\n12.0 25\n")
    assert logs.read(run, "p", since=11) == "loading... done\nthree\n"


# --- lines as they come ---


@given(contents, st.lists(st.integers(0, 60), max_size=8))
def test_a_tail_gives_every_line_once_and_whole(file: Path, data: bytes, cuts: list[int]) -> None:
    file.write_bytes(b"")
    tail, lines, written = logs.LogTail(file), [], 0
    for cut in [*sorted(cuts), len(data)]:
        with file.open("ab") as log:
            log.write(data[written : max(written, min(cut, len(data)))])
        written = max(written, min(cut, len(data)))
        lines += tail.read_new()
    rest = tail.read_incomplete_line()
    whole, _, unfinished = data.decode().rpartition("\n")
    assert lines == (whole.split("\n") if "\n" in data.decode() else [])
    assert rest == ([unfinished] if unfinished else [])
    assert tail.read_new() == tail.read_incomplete_line() == []
    assert tail.offset == len(data)


@given(contents, st.lists(st.integers(0, 60), max_size=8))
def test_a_tail_reads_up_to_a_limit(file: Path, data: bytes, limits: list[int]) -> None:
    file.write_bytes(data)
    tail, lines = logs.LogTail(file), []
    for limit in limits:
        before = tail.offset
        lines += tail.read_new(limit)
        assert tail.offset == max(before, min(limit, len(data)))
    lines += tail.read_new()
    assert (
        "".join(f"{line}\n" for line in lines) + "".join(tail.read_incomplete_line())
        == data.decode()
    )


def test_a_character_that_is_split_between_two_looks_is_one(tmp_path: Path) -> None:
    log, text = tmp_path / "log", "é日🎻\n".encode()
    tail = logs.LogTail(log)
    assert tail.read_new() == []
    for byte in text:
        with log.open("ab") as file:
            file.write(bytes([byte]))
        lines = tail.read_new()
    assert lines == ["é日🎻"]


def test_a_tail_may_begin_later(tmp_path: Path) -> None:
    (tmp_path / "log").write_bytes(b"a\nb\nc\n")
    assert logs.LogTail(tmp_path / "log", 2).read_new() == ["b", "c"]


# --- several processes ---


def texts(lines: list[LogLine]) -> list[str]:
    return [f"{line.process}:{line.text}" for line in lines]


def test_several_logs_are_merged_in_the_order_of_time(run: RunDirectory) -> None:
    write(run, "a", b"1\n3\n5\n", "10.0 2\n12.0 4\n14.0 6\n")
    write(run, "b", b"2\n4\n6", "11.0 2\n13.0 4\n")
    lines, tails = logs.read_merged(run, ["a", "b"])
    assert texts(lines) == ["a:1", "b:2", "a:3", "b:4", "a:5"]
    assert tails["b"].read_incomplete_line() == ["6"]
    assert [tail.offset for tail in tails.values()] == [6, 5]


def test_a_line_that_a_note_splits_stands_where_it_was_finished(run: RunDirectory) -> None:
    write(run, "a", b"begun... done\n", "10.0 8\n12.0 14\n")
    write(run, "b", b"between\n", "11.0 8\n")
    assert texts(logs.read_merged(run, ["a", "b"])[0]) == ["b:between", "a:begun... done"]


def test_merging_with_a_tail_and_since(run: RunDirectory) -> None:
    write(run, "a", b"1\n3\n5\n", "10.0 2\n12.0 4\n14.0 6\n")
    write(run, "b", b"2\n4\n", "11.0 2\n13.0 4\n")
    assert texts(logs.read_merged(run, ["a", "b"], tail=1)[0]) == ["b:4", "a:5"]
    assert texts(logs.read_merged(run, ["a", "b"], since=11.5)[0]) == ["a:3", "b:4", "a:5"]
    assert texts(logs.read_merged(run, ["none"])[0]) == []


def test_one_log_is_in_order_whatever_the_clock_says(run: RunDirectory) -> None:
    """A note is rounded up, or the clock was put back since."""
    write(run, "a", b"1\n2\n3\n", f"{time.time() + 3600:.3f} 2\n{time.time() + 1800:.3f} 4\n")
    assert texts(logs.read_merged(run, ["a"])[0]) == ["a:1", "a:2", "a:3"]


@settings(max_examples=20)
@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(1, 3)), max_size=12))
def test_merging_loses_nothing_and_keeps_the_order_of_each(
    tmp_path_factory: pytest.TempPathFactory, writes: list[tuple[str, int]]
) -> None:
    directory = RunDirectory(tmp_path_factory.mktemp("run"))
    directory.logs.mkdir()
    expected = []
    for at, (process, count) in enumerate(writes):
        with directory.log(process).open("a") as log:
            log.writelines(f"{at}.{line}\n" for line in range(count))
        with directory.log_times(process).open("a") as when:
            when.write(f"{at} {directory.log(process).stat().st_size}\n")
        expected += [f"{process}:{at}.{line}" for line in range(count)]
    assert texts(logs.read_merged(directory, ["a", "b"])[0]) == expected


# --- following ---


def test_following_gives_what_is_written_meanwhile_and_ends(run: RunDirectory) -> None:
    write(run, "p", b"before\n")
    looks = iter(["", "one\ntw", "o\n", "last words"])

    def ended() -> bool:
        """Write a little more at each look, as a process would between two."""
        more = next(looks, None)
        if more is not None:
            with run.log("p").open("a") as log:
                log.write(more)
        return more is None

    lines, tails = logs.read_merged(run, ["p"])
    followed = [line.text for line in logs.follow(run, tails, ended, check_every=0.01)]
    assert [line.text for line in lines] + followed == ["before", "one", "two", "last words"]


@pytest.mark.parametrize("looking", [False, True])
def test_growth_is_told_at_once_and_silence_after_a_while(
    tmp_path: Path, looking: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if looking:  # as where the user has no inotify instance left
        monkeypatch.setattr("symphony.host.inotify.FileWatcher", no_more)
    path = tmp_path / "log"
    path.write_text("")
    with logs.growing({"p": path}) as grown:
        grown(5.0)  # the first look may find what was there
        with path.open("a") as log:
            log.write("x")
        assert grown(3600.0) == {"p"}
        grown(0.01)
        begin = time.monotonic()
        assert grown(0.05) == set()
        assert time.monotonic() - begin >= 0.04


def no_more() -> None:
    raise OSError(24, "Too many open files")


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="descriptors are counted in /proc")
def test_following_leaves_no_descriptor_open(run: RunDirectory) -> None:
    write(run, "p", b"line\n")
    before = set(os.listdir("/proc/self/fd"))
    for _ in range(3):
        _, tails = logs.read_merged(run, ["p"])
        assert list(logs.follow(run, tails, lambda: True)) == []
    assert (
        set(os.listdir("/proc/self/fd")) <= before
    )  # one of an earlier test may be closed meanwhile
