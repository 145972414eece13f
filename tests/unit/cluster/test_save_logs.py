"""Saving the output that is followed to files."""

from __future__ import annotations

from collections.abc import Iterator
from io import FileIO
from pathlib import Path

from symphony.cluster import save_logs
from symphony.log_blocks import LogBlock
from tests.unit.scan_cost import passes


class ShortFile(FileIO):
    """A file that stores only a part of the data of a write, as a disk does that becomes full."""

    def write(self, data: bytes) -> int:  # type: ignore[override]
        return super().write(data[:3])


def test_output_is_written_unchanged_when_it_arrives(tmp_path: Path) -> None:
    texts = ["one\ntwo\n", "\r10%", "\r20%", "\nthr", "ee"]
    sizes = []

    def blocks() -> Iterator[LogBlock]:
        for text in texts:
            yield LogBlock("p", text)
            sizes.append((tmp_path / "p.log").stat().st_size)

    assert save_logs.save_following(tmp_path, ["p"], blocks()) == {"p": tmp_path / "p.log"}
    assert sizes == [8, 12, 16, 20, 22]
    assert (tmp_path / "p.log").read_bytes() == b"one\ntwo\n\r10%\r20%\nthree"


def test_long_log_is_saved_fast(tmp_path: Path) -> None:
    assert passes(lambda log: save_logs.save_following(tmp_path, ["p"], [LogBlock("p", log)])) < 5


def test_short_write_is_continued(tmp_path: Path) -> None:
    with ShortFile(tmp_path / "p.log", "w") as file:
        save_logs._write(file, b"one\ntwo\n")
    assert (tmp_path / "p.log").read_text() == "one\ntwo\n"
