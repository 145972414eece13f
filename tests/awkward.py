"""A folder with all that is awkward to copy: names, modes, links, and what is empty."""

from collections.abc import Iterable
from pathlib import Path

# Names that a shell, or a reader of lines, would take for something else.
ODD = (
    "two words",
    "new\nline",
    "-leading",
    "naïve 日本",
    "quo'te\"",
    "back\\slash",
    "$(no)",
    "*?[a]",
)


def sample(folder: Path, names: Iterable[str]) -> Path:
    """Make the folder, with a file in a folder of its name for each of ``names``; a test may add to it."""
    for name in names:
        (folder / name).mkdir(parents=True)
        (folder / name / name).write_text(name)
    (folder / "empty").mkdir()
    (folder / "nothing").touch()
    (folder / "program").write_text("#!/bin/sh\n")
    (folder / "program").chmod(0o751)
    (folder / "to-file").symlink_to("program")
    (folder / "away").symlink_to("/etc")
    (folder / "dangling").symlink_to("../no/such")
    return folder
