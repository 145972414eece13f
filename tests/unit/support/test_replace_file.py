"""Replacing a file in one step."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.support.replace_file import replace_file


def test_file_is_replaced_with_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    replace_file(path, [b"new ", b"text"], mode=0o600)
    assert path.read_text() == "new text"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["file"]


def test_file_is_kept_after_an_error(tmp_path: Path) -> None:
    def fail() -> Iterator[bytes]:
        yield b"new"
        raise OSError(errno.ENOSPC, "No space left")

    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(OSError, match="No space left") as caught:
        replace_file(path, fail())
    assert caught.value.filename == str(path)
    assert path.read_text() == "old"
    assert os.listdir(tmp_path) == ["file"]
    with pytest.raises(FileNotFoundError) as missing:
        replace_file(tmp_path / "none" / "file", [b"new"])
    assert missing.value.filename == str(tmp_path / "none" / "file")
