"""Watching files for changes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.supervised.read.inotify import FileWatcher

MAX_QUEUED_EVENTS = Path("/proc/sys/fs/inotify/max_queued_events")


@pytest.fixture
def watcher() -> Iterator[FileWatcher]:
    watcher = FileWatcher()
    yield watcher
    watcher.close()


@pytest.fixture
def files(tmp_path: Path, watcher: FileWatcher) -> dict[str, Path]:
    """Return files that are watched."""
    files = {name: tmp_path / name for name in ("a", "b")}
    for name, path in files.items():
        path.write_text("")
        watcher.add(name, path)
    return files


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("x")


def test_each_change_is_reported(watcher: FileWatcher, files: dict[str, Path]) -> None:
    for _ in range(3):
        append(files["a"])
        assert watcher.changed() == {"a"}
        assert watcher.changed() == set()


def test_removed_file_is_not_watched(watcher: FileWatcher, files: dict[str, Path]) -> None:
    watcher.remove("a")
    watcher.remove("a")
    append(files["a"])
    append(files["b"])
    assert watcher.changed() == {"b"}
    watcher.add("a", files["a"])
    append(files["a"])
    assert watcher.changed() == {"a"}


def test_deleted_file_is_reported_and_no_longer_watched(
    watcher: FileWatcher, files: dict[str, Path]
) -> None:
    files["a"].unlink()
    assert watcher.changed() == {"a"}
    assert not watcher.is_watching("a")
    assert watcher.is_watching("b")


def test_all_files_are_reported_after_a_queue_overflow(
    watcher: FileWatcher, files: dict[str, Path], tmp_path: Path
) -> None:
    limit = int(MAX_QUEUED_EVENTS.read_text())
    if limit > 1 << 17:
        pytest.skip("the queue is too long for this test")
    (tmp_path / "c").write_text("")
    watcher.add("c", tmp_path / "c")
    with files["a"].open("ab", buffering=0) as first, files["b"].open("ab", buffering=0) as second:
        # Successive changes of the same file are one entry of the queue.
        for _ in range(limit // 2 + 1):
            first.write(b"x")
            second.write(b"x")
    append(tmp_path / "c")
    found: set[str] = set()
    while new := watcher.changed():
        found |= new
    assert found == {"a", "b", "c"}
