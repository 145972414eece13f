"""Finding programs in the directories of PATH."""

from __future__ import annotations

from pathlib import Path

import pytest

from symphony.supervised.processes.program_paths import ProgramPaths


@pytest.fixture
def directories(tmp_path: Path) -> tuple[Path, Path]:
    """Two directories: ``tool`` is a program only in the second one."""
    first, second = tmp_path / "first", tmp_path / "second"
    for directory, mode in ((first, 0o600), (second, 0o700)):
        directory.mkdir()
        (directory / "tool").write_text("#!/bin/sh\n")
        (directory / "tool").chmod(mode)
    (first / "folder").mkdir()
    return first, second


def test_first_executable_file_is_found(directories: tuple[Path, Path]) -> None:
    first, second = directories
    paths = ProgramPaths()
    assert paths.find("tool", f"{first}:{second}") == f"{second}/tool"
    assert paths.find("tool", str(first)) is None
    assert paths.find("folder", f"{first}:{second}") is None


@pytest.mark.parametrize("search", ["", ":/bin", "bin:/bin", "/does-not-exist:."])
def test_path_that_depends_on_the_directory_of_the_process_is_not_searched(search: str) -> None:
    assert ProgramPaths().find("sh", search) is None


@pytest.mark.parametrize("program", ["", "/bin/sh", "./sh", "bin/sh"])
def test_path_is_not_searched(program: str) -> None:
    assert ProgramPaths().find(program, "/bin:/usr/bin") is None
