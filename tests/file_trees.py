"""Directories for the tests of copying: unusual names, modes, links, empty files."""

from collections.abc import Iterable
from pathlib import Path

# Names that a shell, or a program that reads lines, could misinterpret.
UNUSUAL_NAMES = (
    "two words",
    "new\nline",
    "-leading",
    "naïve 日本",
    "quo'te\"",
    "back\\slash",
    "$(no)",
    "*?[a]",
)


def create_tree(directory: Path, names: Iterable[str]) -> Path:
    """Create a directory with a subdirectory and a file for each of `names`, and return it.

    It also contains an empty directory, an empty file, a program and symbolic links.
    """
    for name in names:
        (directory / name).mkdir(parents=True)
        (directory / name / name).write_text(name)
    (directory / "empty").mkdir()
    (directory / "nothing").touch()
    (directory / "program").write_text("#!/bin/sh\n")
    (directory / "program").chmod(0o751)
    (directory / "to-file").symlink_to("program")
    (directory / "away").symlink_to("/etc")
    (directory / "dangling").symlink_to("../no/such")
    return directory


def nested_directories(directory: Path, levels: int) -> Path:
    """Create a directory with ``levels`` levels of directories below it. Return the lowest one."""
    lowest = directory.joinpath(*["d"] * levels)
    lowest.mkdir(parents=True)
    return lowest
